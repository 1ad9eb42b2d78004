#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace gannet {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "gannet-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name, const std::string& content) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder_)) result.push_back(entry.path().filename());
    return result;
  }

  fs::path folder_;
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_F(Files, MapsAllBytes) {
  std::string content;
  for (int i = 0; i < 100'000; ++i) content.push_back(static_cast<char>(i * 7));
  const auto mapped = MappedFile::open(file("data", content));
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(text_of(*mapped), content);
}

TEST_F(Files, EmptyFileMapsToNoBytes) {
  const auto mapped = MappedFile::open(file("empty", ""));
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->bytes().empty());
}

TEST_F(Files, MissingFileNamesPathAndReason) {
  const auto path = folder_ / "missing";
  for (const Status& status : {MappedFile::open(path).map([](auto&&) {}), read_file(path).map([](auto&&) {})}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr(path.string()), HasSubstr("No such file")));
  }
}

TEST_F(Files, DirectoriesAndDevicesAreRefused) {
  for (const fs::path& path : {folder_, fs::path("/dev/zero")}) {
    for (const Status& status : {MappedFile::open(path).map([](auto&&) {}), read_file(path).map([](auto&&) {})}) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().kind, ErrorKind::invalid_input);
      EXPECT_THAT(status.error().message, AllOf(HasSubstr(path.string()), HasSubstr("not a regular file")));
    }
  }
}

TEST_F(Files, MovedMappingKeepsItsBytesAndLeavesNone) {
  auto first = MappedFile::open(file("a", "first"));
  ASSERT_TRUE(first);
  MappedFile moved = std::move(*first);
  EXPECT_EQ(text_of(moved), "first");
  EXPECT_TRUE(first->bytes().empty());

  auto second = MappedFile::open(file("b", "second"));
  ASSERT_TRUE(second);
  moved = std::move(*second);
  EXPECT_EQ(text_of(moved), "second");
}

TEST_F(Files, MappingOutlivesTheName) {
  const auto path = file("a", "still here");
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped);
  fs::remove(path);
  EXPECT_EQ(text_of(*mapped), "still here");
}

TEST_F(Files, ReadsTextWithZerosAndWithoutChangingLineEnds) {
  const std::string content("a\0b\r\n\xff", 6);
  const auto text = read_file(file("text", content));
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, content);
  EXPECT_EQ(read_file(file("empty", "")).value(), "");
}

TEST_F(Files, ReadRefusesMoreThanTheLimit) {
  const auto path = file("text", "12345");
  EXPECT_EQ(read_file(path, 5).value(), "12345");
  const auto refused = read_file(path, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("5 bytes"), HasSubstr("at most 4")));
}

TEST_F(Files, WritesAndReplacesAndLeavesNothingBeside) {
  const auto path = folder_ / "out";
  ASSERT_TRUE(write_file(path, bytes_of("a longer first version")));
  ASSERT_TRUE(write_file(path, bytes_of("second")));
  EXPECT_EQ(read_file(path).value(), "second");
  ASSERT_TRUE(write_file(path, {}));
  EXPECT_EQ(read_file(path).value(), "");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

TEST_F(Files, ReplacingAFileLeavesItsMappingsAlone) {
  const auto path = file("a", "old");
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped);
  ASSERT_TRUE(write_file(path, bytes_of("new content")));
  EXPECT_EQ(text_of(*mapped), "old");
}

TEST_F(Files, WritingIntoAMissingFolderLeavesNothing) {
  const auto status = write_file(folder_ / "missing" / "out", bytes_of("x"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::failed);
  EXPECT_THAT(status.error().message, HasSubstr("missing/out"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Files, WritingBelowAFileLeavesTheFile) {
  const auto path = file("a", "content");
  EXPECT_FALSE(write_file(path / "out", bytes_of("x")));
  EXPECT_EQ(read_file(path).value(), "content");
}

TEST_F(Files, WritingOverAFolderLeavesTheFolder) {
  fs::create_directory(folder_ / "inner");
  const auto status = write_file(folder_ / "inner", bytes_of("x"));
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("inner"));
  EXPECT_THAT(names(), ::testing::ElementsAre("inner"));
}

// The temporary file is a link to a device without room, as a full disk would be.
TEST_F(Files, FullDiskKeepsTheOldFileAndLeavesNothingBeside) {
  const auto path = file("out", "old");
  fs::create_symlink("/dev/full", folder_ / "out.partial");
  const auto status = write_file(path, bytes_of("new"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::failed);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("out: cannot be written"), HasSubstr("No space left")));
  EXPECT_EQ(read_file(path).value(), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("out"));
}

// A rename over a device would put a file in its place; whoever runs as root would lose the device.
TEST_F(Files, DevicesAreWrittenInPlaceAndStayDevices) {
  for (const char* device : {"/dev/full", "/dev/null"}) {
    const auto path = folder_ / "device";
    fs::create_symlink(device, path);
    const auto status = write_file(path, bytes_of("x"));
    EXPECT_EQ(status.has_value(), std::string(device) == "/dev/null");
    EXPECT_TRUE(fs::is_symlink(path));
    EXPECT_TRUE(fs::is_character_file(path));
    fs::remove(path);
  }
}

}  // namespace
}  // namespace gannet
