#include "text/detokenizer.h"

#include "text/unicode/unicode.h"

namespace quire {

std::string Detokenizer::push(TokenId id) {
  if (!keep_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);

  std::string text;
  std::size_t done = 0;
  while (done < pending_.size()) {
    const Utf8Unit unit = utf8_at(pending_, done);
    if (unit.unfinished) break;
    append_utf8(text, unit.code);
    done += unit.bytes;
  }
  pending_.erase(0, done);
  return text;
}

std::string Detokenizer::finish() {
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace quire
