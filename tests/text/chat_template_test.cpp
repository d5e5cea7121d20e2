#include "text/chat_template.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "quire/quire.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

using testing::HasSubstr;

const std::vector<Message> kPage = {
    {"user", {{ContentPart::Kind::image, ""}, {ContentPart::Kind::text, "Convert this page to Markdown."}}}};

std::string render(std::string_view source) {
  return ChatTemplate(source).render({}, false);
}

void expect_refused(std::string_view source, ErrorCode code, const std::string& part) {
  try {
    render(source);
    ADD_FAILURE() << source << " was rendered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

// The model was trained with these ids around the image's.
TEST(ChatTemplate, MakesThePromptOfQuireMini) {
  const ChatTemplate chat = ChatTemplate::from_directory("models/quire-mini");
  const Tokenizer tokenizer = Tokenizer::from_file("models/quire-mini/tokenizer.json");
  const std::vector<TokenId> expected = {4089, 327, 256,  198, 4091, 4093, 4092, 34,  263,
                                         2064, 642, 2877, 339, 810,  74,   67,   805, 13,
                                         4090, 198, 4089, 488, 363,  422,  198};
  EXPECT_EQ(tokenizer.encode(chat.render(kPage, false)), expected);
  EXPECT_EQ(tokenizer.encode(chat.render(kPage, true)), expected);
}

TEST(ChatTemplate, PlacesEachImageWhereItStands) {
  const ChatTemplate chat = ChatTemplate::from_directory("models/quire-mini");
  const std::vector<Message> messages = {{"system", {{ContentPart::Kind::text, "Be exact."}}},
                                         {"user",
                                          {{ContentPart::Kind::text, "a"},
                                           {},
                                           {ContentPart::Kind::image, ""},
                                           {ContentPart::Kind::image, ""},
                                           {ContentPart::Kind::text, "b"}}},
                                         {"assistant", {{ContentPart::Kind::text, "c"}}}};
  const std::string image = "<|vision_start|><|image_pad|><|vision_end|>";
  EXPECT_EQ(chat.render(messages, false),
            "<|im_start|>system\nBe exact.<|im_end|>\n<|im_start|>user\na" + image + image +
                "b<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, PassesVariables) {
  const ChatTemplate chat("{{ enable_thinking }} {{ add_generation_prompt }} {{ tools }} {{ messages }}");
  EXPECT_EQ(chat.render(kPage, true),
            "True True None [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': "
            "'Convert this page "
            "to Markdown.'}]}]");
  // One text part is a plain string, and no bytes that are not UTF-8 get in.
  EXPECT_EQ(chat.render({{"user", {{ContentPart::Kind::text, "a\xff"}}}}, false),
            "False True None [{'role': 'user', 'content': 'a\ufffd'}]");
}

TEST(ChatTemplate, IsFoundInAModelDirectory) {
  const std::filesystem::path model = std::filesystem::path(testing::TempDir()) / "chat_template_test";
  std::filesystem::remove_all(model);
  std::filesystem::create_directories(model);
  try {
    ChatTemplate::from_directory(model);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("chat_template.jinja"));
  }
  write_file_atomically(model / "tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(ChatTemplate::from_directory(model).render({}, false), "config");
  write_file_atomically(
      model / "chat_template.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "list"}]})");
  EXPECT_EQ(ChatTemplate::from_directory(model).render({}, false), "list");
  write_file_atomically(model / "chat_template.jinja", "file");
  EXPECT_EQ(ChatTemplate::from_directory(model).render({}, false), "file");
  write_file_atomically(model / "chat_template.jinja", "{{ \xff }}");
  EXPECT_THROW(ChatTemplate::from_directory(model), Error);
  std::filesystem::remove(model / "chat_template.jinja");
  write_file_atomically(model / "chat_template.json", R"({"chat_template": 5})");
  EXPECT_THROW(ChatTemplate::from_directory(model), Error);
}

TEST(ChatTemplate, NamesLineAndReason) {
  expect_refused("a\n{{ raise_exception('No pages.') }}", ErrorCode::invalid_input, "line 2: No pages.");
  expect_refused("\n\n{% if x %}", ErrorCode::invalid_input, "line 3");
  expect_refused("{% include 'x' %}", ErrorCode::unsupported, "line 1: the tag \"include\"");
  expect_refused("\n{{ 1 | wordcount }}", ErrorCode::unsupported, "line 2: the filter \"wordcount\"");
  expect_refused("{{ 'x'.center(3) }}", ErrorCode::unsupported, "the method center() of a str");
  expect_refused("{{ strftime_now('%Y') }}", ErrorCode::unsupported, "strftime_now()");
  expect_refused("{{ messages.x }}{{ nothing.x }}", ErrorCode::invalid_input, "\"nothing\" is undefined");
  EXPECT_THROW(ChatTemplate("").render_json("[]"), Error);
  EXPECT_THROW(ChatTemplate("").render_json("{"), Error);
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Each of these would run, grow or recurse without end.
TEST(ChatTemplate, EndsWhateverTheTemplate) {
  const auto ends = [](std::string_view source) {
    expect_refused(source, ErrorCode::limit_exceeded, "chat template, line");
  };
  ends("{% for a in range(1000000000) %}{% endfor %}");
  ends(
      "{% for a in range(3000) %}{% for b in range(3000) %}{% for c in range(3000) %}{% endfor %}{% endfor "
      "%}{% endfor %}");
  ends("{{ 'x' * 1000000000000 }}");
  ends("{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  ends("{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  ends("{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}");
  ends(
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s }}");
  ends(
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s | tojson }}");
  ends(
      "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set "
      "ns.t = [ns.t, ns.t] %}"
      "{% endfor %}{{ ns.s == ns.t }}");
  ends("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  ends("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}");
  ends("{{ 9223372036854775807 + 1 }}");
  ends("{{ " + repeated("(", 5000) + repeated(")", 5000) + " }}");
  ends("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}");
  ends("{{ " + repeated("not ", 5000) + "1 }}");
  ends("{{ " + repeated("- ", 5000) + "1 }}");
  ends("{{ 1" + repeated(" + 1", 5000) + " }}");
  ends("{{ a" + repeated(".a", 5000) + " }}");
  ends("{{ a" + repeated("|upper", 5000) + " }}");
  ends("{{ 1" + repeated(" if 1 else 1", 5000) + " }}");
  ends(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000));
}

TEST(ChatTemplate, TakesLongConversations) {
  const std::string text(1 << 20, 'x');
  const std::string prompt = ChatTemplate::from_directory("models/quire-mini")
                                 .render({{"user", {{ContentPart::Kind::text, text}}}}, false);
  EXPECT_EQ(prompt.size(),
            text.size() + std::string_view("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n").size());
}

}  // namespace
}  // namespace quire
