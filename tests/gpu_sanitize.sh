#!/bin/sh
# gpu_sanitize.sh GPU_TESTS: a few tests of every kernel under compute-sanitizer, memcheck and then racecheck; under three
# minutes on an H200. Exit code 0 when both are clean, 77 when the tool is not there.
tests=$1
small='Linear.ComputesByHand/cuda*:AttentionTest.ComputesByHand/cuda*:AttentionGateTest.ByHand/cuda*'
small="$small:VisionAttentionTest.ByHand/cuda*:Rope.Computes*/cuda*:Conv1d.ComputesByHand/cuda*:Norm.*ByHand/cuda*"
small="$small:Gdn.StoresAndReadsBack/cuda*:Gdn.GatesByHand/cuda*:GdnWindows.ContinueThePrompt/cuda*"
small="$small:SampleTest.PenaltiesByHand/cuda*:StepTest.*:BlockConvTest.ComputesByHand/cuda*"
small="$small:SelectTest.ComputesByHand/cuda*:SelectTest.SettlesTies*/cuda*:LookupTest.ComputesByHand"
larger="$small:Linear.ProjectTakes*/cuda*:Linear.ProjectSwigluMatches*/cuda*:Linear.EveryStride*/cuda*:AttentionTest.QueryHeads*/cuda*"
larger="$larger:Gdn.LaterTokens*/cuda*:SampleTest.KeepsByHand/cuda*"
larger="$larger:AttentionTest.AlignmentDoesNotMatter/cuda_bf16"
for rows in Norm BlockConvTest AttentionGateTest Rope Embed; do larger="$larger:$rows.Aligned*/cuda_bf16"; done
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the path"; exit 77; }
check() {
  echo "== $1"
  timeout 85 compute-sanitizer --tool "$1" --error-exitcode 1 "$tests" --gtest_brief=1 --gtest_filter="$2" || exit 1
}
check memcheck "$larger"
check racecheck "$small"
