from tumorchain_jax.ahead_of_time.collectives import Collective, by_kind, collectives, nbytes

# A scan of 3 with a gather, a scan of 5 within it with a fused scatter, a loop of unknown length.
PROGRAM = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%all-reduce-scatter.1 (input: f32[8,16], other: f32[8]) -> (f32[2,16], f32[2]) {
  %input = f32[8,16]{1,0} parameter(0)
  %all-reduce.7 = f32[8,16]{1,0:T(8,128)} all-reduce(%input), to_apply=%add
  %all-reduce.8 = f32[8]{0} all-reduce(%other), to_apply=%add
  ROOT %slice = (f32[2,16], f32[2]) tuple(%all-reduce.7, %all-reduce.8)
}

%inner (p: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %f = (f32[2,16], f32[2]) fusion(%x), calls=%all-reduce-scatter.1, metadata={op_name="grad"}
}

%inner_cond (p: (s32[], f32[8,16])) -> pred[] {
  %limit = s32[]{:T(128)} constant(5)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

%outer (p: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %ag = bf16[4,16]{1,0:T(8,128)(2,1)} all-gather(%w), channel_id=9, metadata={op_name="mlp"}
  %rest = f32[2] fusion(%ag), calls=%hidden
  %again = (s32[], f32[8,16]) while(%t), condition=%inner_cond, body=%inner
}

%outer_cond (p: (s32[], f32[8,16])) -> pred[] {
  %three = s32[] constant(3)
  ROOT %lt.2 = pred[] compare(%i, %three), direction=LT
}

%unknown (p: (pred[])) -> (pred[]) {
  %cp = (f32[4], f32[4], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1}}
  %done = f32[4] collective-permute-done(%cp)
}

%unknown_cond (p: (pred[])) -> pred[] {
  ROOT %b = pred[] get-tuple-element(%p), index=0
}

%taken (p: f32[2]) -> f32[2] {
  %a2a = f32[2]{0} all-to-all(%p), dimensions={0}
}

%hidden (p: bf16[4,16]) -> f32[2] {
  %ag.2 = bf16[4,16]{1,0:T(8,128)(2,1)} all-gather(%w), channel_id=9, metadata={op_name="mlp"}
}

%dead (p: f32[2]) -> f32[2] {
  %never = f32[2]{0} all-gather(%p), dimensions={0}
}

ENTRY %main (arg: f32[8,16]) -> f32[8,16] {
  %first = (f32[4,2], f32[16,2]) all-gather-start(%arg), dimensions={0}
  %loop = (s32[], f32[8,16]) while(%t), condition=%outer_cond, body=%outer
  %open = (pred[]) while(%u), condition=%unknown_cond, body=%unknown
  %branch = f32[2] conditional(%c, %arg, %arg), branch_computations={%taken, %taken}
}
"""


def test_collectives_in_a_loop_count_as_often_as_it_runs() -> None:
    assert sorted(collectives(PROGRAM), key=lambda one: one.kind) == [
        Collective("all-gather", "bf16[4,16]{1,0:T(8,128)(2,1)}", 128, 3, "mlp"),
        Collective("all-gather", "f32[16,2]", 128, 1, ""),
        Collective("all-to-all", "f32[2]{0}", 8, 2, ""),
        Collective("collective-permute", "f32[4]", 16, 1, ""),
        Collective("reduce-scatter", "(f32[2,16], f32[2])", 136, 15, "grad"),
    ]


def test_trip_count_of_a_gpu_loop() -> None:
    beside = """condition=%unknown_cond, backend_config={"known_trip_count":{"n":"7"}}"""
    program = PROGRAM.replace("condition=%unknown_cond", beside)
    [sent] = [one for one in collectives(program) if one.kind == "collective-permute"]
    assert sent.times == 7


def test_sums_by_kind() -> None:
    found = by_kind(collectives(PROGRAM))
    assert found["all-gather"] == {"count": 4, "bytes": 3 * 128 + 128}
    assert found["reduce-scatter"] == {"count": 15, "bytes": 15 * 136}
    assert list(found) == sorted(found)


def test_sizes() -> None:
    assert nbytes("f32[]") == 4
    assert nbytes("pred[3,5]{1,0}") == 15
    assert nbytes("(bf16[2,8]{1,0:T(8,128)(2,1)}, /*index=1*/s8[4], u32[])") == 40
    assert nbytes("token[]") == 1 or nbytes("()") == 0


def test_collectives_of_one_channel_are_counted_each_time() -> None:
    lines = [
        f"  %a.{i} = f32[{i},2] all-to-all(%arg), channel_id=1, dimensions={{0}}" for i in (3, 4)
    ]
    program = "\n".join(["ENTRY %main (arg: f32[8]) -> f32[8] {", *lines, "}"])
    assert [one.shape for one in collectives(program)] == ["f32[3,2]", "f32[4,2]"]
