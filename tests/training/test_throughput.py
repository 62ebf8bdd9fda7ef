import jax
import pytest

from tumorchain_jax.parallel.chips import peak_tflops
from tumorchain_jax.training import throughput
from tumorchain_jax.training.throughput import Throughput, Work


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throughput, "time", clock)
    return clock


def test_rates_are_of_the_time_since_the_last_reading(clock: Clock) -> None:
    rates = Throughput(Work(volumes=8))
    for seconds, steps in ((10.0, 5), (20.0, 2)):
        for _ in range(steps):
            with rates.waiting():
                clock.now += 0.5
            rates.step()
        clock.now += seconds - 0.5 * steps
        assert rates.read(tokens=600.0) == {
            "seconds_a_step": seconds / steps,
            "waiting_for_data": 0.5 * steps / seconds,
            "volumes_per_second": 8 * steps / seconds,
            "tokens_per_second": 600 / seconds,
        }


def test_mfu_is_of_the_peak_of_all_devices(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = jax.device_count()
    monkeypatch.setattr(throughput, "peak_tflops", lambda kind: 2.0)
    rates = Throughput(Work(flops=3 * 10**12))
    rates.step()
    clock.now += 6.0
    assert rates.read(0.0) == {
        "seconds_a_step": 6.0,
        "waiting_for_data": 0.0,
        "mfu": pytest.approx(3 / 6 / 2 / devices),
    }


def test_mfu_of_a_device_not_in_the_table_is_unknown(clock: Clock) -> None:
    assert peak_tflops("cpu") is None
    assert peak_tflops("TPU v5 lite") == 197.0
    rates = Throughput(Work(flops=1))
    rates.step()
    clock.now += 1.0
    assert rates.read(0.0)["mfu"] == "unknown"
