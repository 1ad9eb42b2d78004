#include <cstdio>
#include <cstring>

#include "ops/cuda/testing.h"

namespace gannet::ops::cuda::test {
namespace {

// What this card reads when it does nothing else (docs/gpu.md).
constexpr double kReadBandwidth = 4.5e12;

}  // namespace

double time_launch(const std::function<void(cudaStream_t, int)>& launch, int repeats) {
  cudaStream_t stream = nullptr;
  GANNET_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  launch(stream, 0);  // loads the kernel
  GANNET_CUDA_CHECK(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  GANNET_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < repeats; ++i) launch(stream, i);
  GANNET_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  GANNET_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  GANNET_CUDA_CHECK(cudaEventCreate(&begin));
  GANNET_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 6; ++i) {
    GANNET_CUDA_CHECK(cudaEventRecord(begin, stream));
    GANNET_CUDA_CHECK(cudaGraphLaunch(exec, stream));
    GANNET_CUDA_CHECK(cudaEventRecord(end, stream));
    GANNET_CUDA_CHECK(cudaStreamSynchronize(stream));
    float milliseconds = 0;
    GANNET_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0) times.push_back(milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / repeats;
}

void report(const char* what, double microseconds, double bytes, double operations) {
  std::printf("%-48s %9.2f us", what, microseconds);
  if (bytes > 0) {
    const double speed = bytes / microseconds * 1e6;
    std::printf("  %7.0f GB/s (%3.0f %%)", speed / 1e9, 100 * speed / kReadBandwidth);
  }
  if (operations > 0) std::printf("  %6.1f TFLOP/s", operations / microseconds / 1e6);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace gannet::ops::cuda::test

int main(int argc, char** argv) {
  bool bench = false;
  for (int i = 1; i < argc; ++i) bench = bench || std::strcmp(argv[i], "--bench") == 0;
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = bench ? "*Benchmark*" : "-*Benchmark*";
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "gannet-gpu-test: no GPU here: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  return RUN_ALL_TESTS();
}
