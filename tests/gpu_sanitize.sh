#!/bin/sh
# gpu_sanitize.sh GPU_TESTS: a few tests of every kernel under compute-sanitizer, memcheck and then racecheck; under three
# minutes on an H200. Exit code 0 when both are clean, 77 when the tool is not there or the machine refuses it.
tests=$1
small='Linear.ComputesByHand/cuda*:Linear.ProjectTakes*/cuda*:AttentionTest.ComputesByHand/cuda*:AttentionTest.QueryHeads*/cuda*'
small="$small:AttentionGateTest.ByHand/cuda*:VisionAttentionTest.ByHand/cuda*:Rope.Computes*/cuda*:Conv1d.ComputesByHand/cuda*"
small="$small:Gdn.StoresAndReadsBack/cuda*:Gdn.GatesByHand/cuda*:Gdn.LaterTokens*/cuda*:GdnWindows.ContinueThePrompt/cuda*"
small="$small:SampleTest.KeepsByHand/cuda*:SampleTest.PenaltiesByHand/cuda*:StepTest.*"
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the path"; exit 77; }
for tool in memcheck racecheck; do
  echo "== $tool"
  timeout 80 compute-sanitizer --tool "$tool" --error-exitcode 1 "$tests" --gtest_brief=1 --gtest_filter="$small" || exit 1
done
