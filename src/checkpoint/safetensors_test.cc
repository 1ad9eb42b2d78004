#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <random>
#include <tuple>

#include "checkpoint/test_directory.h"

namespace gannet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of that header text and that many zero bytes.
std::string file_of(std::string_view header, size_t payload) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + std::string(header) + std::string(payload, '\0');
}

std::string message_of(const TestDirectory& directory, std::string_view content) {
  write_text(directory / "x.safetensors", content);
  const auto file = SafetensorsFile::open(directory / "x.safetensors");
  if (file) return "no error";
  EXPECT_EQ(file.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(file.error().message, HasSubstr("x.safetensors"));
  return file.error().message;
}

TEST(Safetensors, RoundTrip) {
  const TestDirectory directory;
  const std::vector<float> floats = {1.5F, -2, 3};
  const std::vector<int32_t> ints = {7, -8};
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{2}, std::byte{255}};
  ASSERT_TRUE(write_safetensors(directory / "f", {{"codes", DType::f8_e4m3, {3}, bytes},
                                                  named_tensor("floats", {3, 1}, floats),
                                                  named_tensor("none", {0, 5}, std::span<const float>()),
                                                  named_tensor("ids", {2}, ints)}));
  const auto file = SafetensorsFile::open(directory / "f");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4U);
  const auto& view = file->tensors().at("floats");
  EXPECT_EQ(describe(view.dtype, view.shape), "F32 [3, 1]");
  ASSERT_EQ(view.bytes.size(), 12U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.bytes.data()) % alignof(float), 0U);
  EXPECT_EQ(std::memcmp(view.bytes.data(), floats.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file->tensors().at("codes").bytes.data(), bytes.data(), 3), 0);
  EXPECT_TRUE(file->tensors().at("none").bytes.empty());
  EXPECT_THAT(file->int32_vector("ids").value(), ElementsAre(7, -8));
  EXPECT_FALSE(std::filesystem::exists(directory / "f.partial"));
}

TEST(Safetensors, EmptyFileOfNoTensors) {
  const TestDirectory directory;
  ASSERT_TRUE(write_safetensors(directory / "f", {}));
  EXPECT_TRUE(SafetensorsFile::open(directory / "f").value().tensors().empty());
}

TEST(Safetensors, ViewsSurviveAMove) {
  const TestDirectory directory;
  const std::vector<int32_t> ints = {1, 2, 3};
  ASSERT_TRUE(write_safetensors(directory / "f", {named_tensor("ids", {3}, ints)}));
  auto file = SafetensorsFile::open(directory / "f").value();
  const auto view = file.tensors().at("ids");
  const auto moved = std::move(file);
  EXPECT_EQ(std::memcmp(view.bytes.data(), ints.data(), 12), 0);
}

TEST(Safetensors, ForeignTypesAndMetadata) {
  const TestDirectory directory;
  write_text(directory / "f", file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[1],)"
                                      R"("data_offsets":[0,8]},"b":{"dtype":"F4","shape":[2],"data_offsets":[8,9]}} )",
                                      9));
  const auto file = SafetensorsFile::open(directory / "f");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->unsupported().at("a"), "I64");
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_THAT(file->int32_vector("a").error().message, HasSubstr("tensor 'a' is I64; it must be an I32 vector"));
  EXPECT_THAT(file->int32_vector("c").error().message, HasSubstr("tensor 'c' is missing"));
}

TEST(Safetensors, VectorOfTheWrongShape) {
  const TestDirectory directory;
  const std::vector<int32_t> ints = {1, 2};
  const std::vector<float> floats = {1, 2};
  ASSERT_TRUE(write_safetensors(directory / "f", {named_tensor("a", {2, 1}, ints), named_tensor("b", {2}, floats)}));
  const auto file = SafetensorsFile::open(directory / "f").value();
  EXPECT_THAT(file.int32_vector("a").error().message, HasSubstr("is I32 [2, 1]; it must be an I32 vector"));
  EXPECT_THAT(file.int32_vector("b").error().message, HasSubstr("is F32 [2]; it must be an I32 vector"));
}

// What the first eight bytes claim.
TEST(Safetensors, HeaderLengthLies) {
  const TestDirectory directory;
  EXPECT_THAT(message_of(directory, ""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(message_of(directory, "1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(message_of(directory, std::string(8, '\0')), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message_of(directory, std::string(8, '\xff')), HasSubstr("header length is 18446744073709551615"));
  EXPECT_THAT(message_of(directory, std::string("\x10\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("header length is 16; the file has only 2 bytes after it"));
  auto huge = file_of("{}", 0);
  huge[3] = '\x7f';
  EXPECT_THAT(message_of(directory, huge), HasSubstr("it must be at most 100000000"));
}

struct BadHeader {
  const char* header;
  size_t payload;
  const char* message;
};

class SafetensorsHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsHeader, IsRefused) {
  const TestDirectory directory;
  EXPECT_THAT(message_of(directory, file_of(GetParam().header, GetParam().payload)), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsHeader,
    testing::Values(
        BadHeader{"not json", 0, "header: is not valid JSON"},
        BadHeader{"[]", 0, "header is []; it must be a JSON object"},
        BadHeader{"{\"\xff\": 1}", 0, "is not valid JSON"},
        BadHeader{R"({"a":3})", 0, "tensor 'a' is 3; it must be an object"},
        BadHeader{R"({"__metadata__":[]})", 0, "__metadata__ is []"},
        BadHeader{R"({"__metadata__":{"a":1}})", 0, "__metadata__.a is 1; it must be a string"},
        BadHeader{R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'a': dtype is missing"},
        BadHeader{R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "dtype is \"F33\""},
        BadHeader{R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is 3"},
        BadHeader{R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a': shape is missing"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape is [-1]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "shape is [1.0]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape is 1;"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a': data_offsets is missing"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets is [0]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "data_offsets is [4,0]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "data_offsets is [-4,0]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}})", 4,
                  "data_offsets is [0,"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                  "data_offsets span 4 bytes; F32 [2] needs 8"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4,
                  "needs more than any file has"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
                  "data_offsets end at 8; the file has 4 bytes of data (truncated?)"},
        BadHeader{R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[9223372036854775800,9223372036854775804]}})", 4,
                  "data_offsets end at 9223372036854775804"},
        BadHeader{R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},
                      "b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})",
                  6, "two tensors share bytes 2 to 4 of the data"},
        BadHeader{R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},
                      "b":{"dtype":"I8","shape":[2],"data_offsets":[6,8]}})",
                  8, "no tensor owns bytes 4 to 6 of the data"},
        BadHeader{R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 5,
                  "has 5 bytes of data; its header describes 4"},
        BadHeader{R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},
                      "a":{"dtype":"I8","shape":[4],"data_offsets":[4,8]}})",
                  8, "has the key 'a' twice"}));

// Whatever a byte says, the file is refused or all its tensors lie inside.
TEST(Safetensors, RandomDamage) {
  const TestDirectory directory;
  const std::vector<float> floats(6);
  const std::vector<int32_t> ints(3);
  ASSERT_TRUE(
      write_safetensors(directory / "f", {named_tensor("floats", {2, 3}, floats), named_tensor("ids", {3}, ints),
                                          named_tensor("0", {0}, std::span(ints).first(0))}));
  const auto good = text_of(directory / "f");
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    auto bad = good;
    for (size_t i = 0; i <= random() % 3; ++i)
      bad[random() % bad.size()] = "0123456789[]{},:\"\xff\0aFI"[random() % 22];
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    write_text(directory / "f", bad);
    const auto file = SafetensorsFile::open(directory / "f");
    if (!file) continue;
    for (const auto& [name, view] : file->tensors()) {
      const TensorHeader header{name, view.dtype, view.shape};
      ASSERT_EQ(static_cast<int64_t>(view.bytes.size()), header.bytes());
      ASSERT_LE(view.bytes.size(), bad.size());
      for (const std::byte byte : view.bytes) std::ignore = std::to_integer<int>(byte);
    }
  }
}

TEST(Safetensors, NotAFile) {
  const TestDirectory directory;
  EXPECT_EQ(SafetensorsFile::open(directory / "absent").error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(SafetensorsFile::open(directory.path()).error().message, HasSubstr("is not a regular file"));
}

TEST(SafetensorsWriter, StreamsInPieces) {
  const TestDirectory directory;
  std::vector<std::byte> bytes(5'000'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  auto writer = SafetensorsWriter::create(
      directory / "f", {{"a", DType::i8, {3'000'000}}, {"b", DType::i8, {1'999'999}}, {"c", DType::i8, {1}}});
  ASSERT_TRUE(writer);
  for (size_t begin = 0; begin < bytes.size(); begin += 1'234'567) {
    ASSERT_TRUE(writer->append(std::span(bytes).subspan(begin, std::min<size_t>(1'234'567, bytes.size() - begin))));
  }
  ASSERT_TRUE(writer->finish());
  const auto file = SafetensorsFile::open(directory / "f").value();
  EXPECT_EQ(std::memcmp(file.tensors().at("a").bytes.data(), bytes.data(), 3'000'000), 0);
  EXPECT_EQ(std::memcmp(file.tensors().at("b").bytes.data(), bytes.data() + 3'000'000, 1'999'999), 0);
  EXPECT_EQ(file.tensors().at("c").bytes[0], bytes.back());
}

TEST(SafetensorsWriter, LeavesNothingWithoutFinish) {
  const TestDirectory directory;
  {
    auto writer = SafetensorsWriter::create(directory / "f", {{"a", DType::i8, {1}}});
    ASSERT_TRUE(writer);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsWriter, UnwritablePlace) {
  const TestDirectory directory;
  write_text(directory / "file", "");
  for (const auto& path : {directory / "file/f", directory / "no/f", std::filesystem::path("/proc/f")}) {
    const auto status = write_safetensors(path, {});
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().kind, ErrorKind::failed);
    EXPECT_THAT(status.error().message, HasSubstr(path.string() + ": cannot be created: "));
  }
  std::filesystem::create_directory(directory / "taken");
  EXPECT_THAT(write_safetensors(directory / "taken", {}).error().message, HasSubstr("cannot be put in place"));
  EXPECT_FALSE(std::filesystem::exists(directory / "taken.partial"));
}

// A full disk, played by a limit on the size of files.
TEST(SafetensorsWriter, FullDisk) {
  const TestDirectory directory;
  const std::vector<float> floats(100'000);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto status = write_safetensors(directory / "f", {named_tensor("a", {100'000}, floats)});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::failed);
  EXPECT_THAT(status.error().message, HasSubstr("f: cannot be written: "));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace gannet
