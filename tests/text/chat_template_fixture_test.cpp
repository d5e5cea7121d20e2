// Chat templates against Jinja2, by fixture.
#include <gtest/gtest.h>

#include "quire/quire.h"
#include "text/chat_template.h"
#include "text/fixture.h"

namespace quire {
namespace {

class TemplateFixture : public testing::TestWithParam<std::filesystem::path> {
 protected:
  Json fixture_ = read_json(GetParam());
};

// Null where Jinja2 refuses; then so must Quire.
TEST_P(TemplateFixture, RendersAsJinja) {
  ASSERT_FALSE(fixture_.at("cases").empty());
  for (const Json& item : fixture_.at("cases")) {
    const std::string source = fixture_.at("templates").at(item.at(0).get<std::size_t>()).get<std::string>();
    const std::string variables = fixture_.at("variables").at(item.at(1).get<std::size_t>()).dump();
    Json rendered;
    std::string error;
    try {
      rendered = ChatTemplate(source).render_json(variables);
    } catch (const Error& e) {
      error = e.what();
    }
    EXPECT_EQ(rendered, item.at(2)) << source.substr(0, 400) << "\non " << variables << "\n" << error;
  }
}

TEST_P(TemplateFixture, NamesWhatIsUnsupported) {
  for (const Json& source : fixture_.at("unsupported")) {
    try {
      ChatTemplate(source.get<std::string>()).render_json(fixture_.at("variables").at(0).dump());
      ADD_FAILURE() << source << " was rendered";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << source << ": " << error.what();
      EXPECT_TRUE(std::string_view(error.what()).starts_with("chat template, line 1: ")) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TemplateFixture, testing::ValuesIn(fixtures("templates")),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace quire
