"""Peak speed of devices, by the names that JAX has for their kinds."""

PEAK_TFLOPS = {
    "TPU v3": 61.5,
    "TPU v4": 275.0,
    "TPU v5 lite": 197.0,
    "TPU v5": 459.0,
    "TPU v6 lite": 918.0,
    "TPU7x": 1153.5,
    "NVIDIA A100-SXM4-40GB": 312.0,
    "NVIDIA A100-SXM4-80GB": 312.0,
    "NVIDIA A100 80GB PCIe": 312.0,
    "NVIDIA H100 80GB HBM3": 989.4,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100 NVL": 835.0,
    "NVIDIA H200": 989.4,
    "NVIDIA L4": 121.0,
    "NVIDIA L40S": 362.0,
    "NVIDIA B200": 2250.0,
}
"""Of one device, bfloat16, dense, as the vendors' data sheets say. A device of a TPU v3 or a TPU7x
is one of a chip's two cores."""


def peak_tflops(device_kind: str) -> float | None:
    """bfloat16 TFLOP/s of one device; None for a kind that is not in the table."""
    return PEAK_TFLOPS.get(device_kind)
