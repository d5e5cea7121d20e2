// Where a model runs: the operations, and the memory their operands live in. One table for the CPU, one for
// CUDA; what is written against it runs on both. The only place that names a machine's runtime is
// src/backend/.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "ops/ops.h"

namespace quire {

struct Backend {
  const char* name;  // "cpu", "cuda"
  const Ops* ops;
  bool host_memory;  // operations reach the host's memory: nothing needs a copy
  int row_tile = 1;  // rows that a product of few rows works on at a time: so many cost least a row

  // Makes a stream ready to run operations, and takes back what that took.
  void (*open)(Stream&);
  void (*close)(Stream&);

  // Uninitialised, aligned to 256 bytes. Throws Error{out_of_memory} with the numbers.
  std::byte* (*allocate)(std::size_t bytes);
  void (*release)(std::byte*);
  // Host memory that copies to and from in the background.
  std::byte* (*allocate_staging)(std::size_t bytes);
  void (*release_staging)(std::byte*);

  // In the order of the stream. When upload and download return, the copy is done; the others only ask for
  // it, and their host side is staging memory that is left alone until an event after them has come.
  void (*upload)(Stream&, void* to, const void* from, std::size_t bytes);
  void (*download)(Stream&, void* to, const void* from, std::size_t bytes);
  void (*begin_upload)(Stream&, void* to, const void* from, std::size_t bytes);
  void (*begin_download)(Stream&, void* to, const void* from, std::size_t bytes);
  void (*copy)(Stream&, void* to, const void* from, std::size_t bytes);  // within its memory
  void (*clear)(Stream&, void* memory, std::size_t bytes);               // zeros
  // Waits for everything asked for so far. Throws Error{device} for what went wrong.
  void (*synchronize)(Stream&);

  // Events: a place in the stream that the host can wait for.
  void* (*new_event)();
  void (*delete_event)(void*);
  void (*record)(Stream&, void* event);
  void (*wait)(Stream&, void* event);                    // of that stream; throws Error{device}
  double (*seconds_between)(void* first, void* second);  // of two that have come

  // Graphs: what `body` asks of the stream, recorded (not run) to be run as one. nullptr: this backend has
  // none.
  void* (*capture)(Stream&, const std::function<void()>& body);
  void (*delete_graph)(void*);
  void (*run)(Stream&, void* graph);

  // What the memory gives at most to whoever only reads, measured now, in bytes a second.
  double (*read_bandwidth)(Stream&);
};

// The fastest table of operations of this CPU, or the one given (for tests).
const Backend& cpu_backend();
Backend cpu_backend(const Ops& ops);
// nullptr when there is no usable GPU, and in a build without CUDA.
const Backend* cuda_backend();

// Memory of a backend, freed with it.
class Memory {
 public:
  Memory() = default;
  Memory(const Backend& backend, std::size_t bytes) : size_(bytes), release_(backend.release) {
    if (bytes > 0) data_ = backend.allocate(bytes);
  }
  static Memory staging(const Backend& backend, std::size_t bytes) {
    Memory m;
    m.size_ = bytes, m.release_ = backend.release_staging;
    if (bytes > 0) m.data_ = backend.allocate_staging(bytes);
    return m;
  }
  ~Memory() {
    if (data_) release_(data_);
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Memory& other) {
    std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(release_, other.release_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void (*release_)(std::byte*) = nullptr;
};

// An event or a graph, deleted with it.
class Handle {
 public:
  Handle() = default;
  Handle(void* object, void (*release)(void*)) : object_(object), release_(release) {}
  ~Handle() {
    if (object_) release_(object_);
  }
  Handle(Handle&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(other.release_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_), std::swap(release_, other.release_);
    return *this;
  }

  void* get() const { return object_; }

 private:
  void* object_ = nullptr;
  void (*release_)(void*) = nullptr;
};

// A stream, open for as long as this lives.
class OpenStream {
 public:
  OpenStream(const Backend& backend, ThreadPool* threads) : backend_(backend) {
    stream_.threads = threads;
    backend.open(stream_);
  }
  ~OpenStream() { backend_.close(stream_); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  operator Stream&() { return stream_; }

 private:
  const Backend& backend_;
  Stream stream_;
};

}  // namespace quire
