// What a build without CUDA has in place of cuda.cu.
#include "backend/backend.h"
#include "backend/cuda.h"
#include "core/error.h"

namespace quire {

const Backend* cuda_backend() {
  return nullptr;
}

int cuda::device_count() {
  return 0;
}
cuda::DeviceFacts cuda::device_facts(int) {
  fail(ErrorCode::not_found, "this build of Quire has no CUDA; there is no GPU");
}

}  // namespace quire
