// The CPU as a backend: host memory, copies that are done when asked for, no events to wait for and no
// graphs.
#include <cstring>
#include <new>

#include "backend/backend.h"
#include "core/error.h"

namespace quire {
namespace {

constexpr std::align_val_t kAlignment{256};

std::byte* allocate(std::size_t bytes) {
  void* p = ::operator new(bytes, kAlignment, std::nothrow);
  if (!p) fail(ErrorCode::out_of_memory, "{} MiB of memory asked for, and not there", bytes >> 20);
  return static_cast<std::byte*>(p);
}
void release(std::byte* p) {
  ::operator delete(p, kAlignment);
}

void copy(Stream&, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void clear(Stream&, void* memory, std::size_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
}

}  // namespace

Backend cpu_backend(const Ops& ops) {
  return {
      .name = "cpu",
      .ops = &ops,
      .host_memory = true,
      .open = [](Stream&) {},
      .close = [](Stream&) {},
      .allocate = allocate,
      .release = release,
      .allocate_staging = allocate,
      .release_staging = release,
      .upload = copy,
      .download = copy,
      .begin_upload = copy,
      .begin_download = copy,
      .clear = clear,
      .synchronize = [](Stream&) {},
      .new_event = []() -> void* { return nullptr; },
      .delete_event = [](void*) {},
      .record = [](Stream&, void*) {},
      .wait = [](void*) {},
      .capture = nullptr,
      .delete_graph = nullptr,
      .run = nullptr,
  };
}

const Backend& cpu_backend() {
  static const Backend backend = cpu_backend(cpu_ops());
  return backend;
}

}  // namespace quire
