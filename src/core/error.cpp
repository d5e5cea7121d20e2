#include "core/error.h"

namespace quire {

Error::Error(ErrorCode code, const std::string& message, std::source_location where)
    : std::runtime_error(message), code_(code), where_(where) {}

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_input:
      return "invalid_input";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::limit_exceeded:
      return "limit_exceeded";
    case ErrorCode::io:
      return "io";
    case ErrorCode::device:
      return "device";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::time_limit:
      return "time_limit";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace quire
