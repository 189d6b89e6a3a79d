// The rules that keep the tree readable (README, "Folders"): who may include whom, which headers stay in which folder,
// how long a file may be, what a file may be called, and that it opens with a comment. In: the source tree at
// LAMINA_SOURCE_DIR. Out: one line for every place that breaks a rule. Each rule is first shown to fail on a small tree
// made for it, so that a rule that checks nothing cannot pass unseen.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

/// Folders from the lowest to the highest: a file includes its own folder and those before it. tests/ includes all.
constexpr std::array<std::string_view, 6> kLayers = {"gguf", "kernels", "model", "engine", "tools", "tests"};

/// Folders under kernels/ that never include each other.
constexpr std::array<std::string_view, 5> kRuntimes = {"cpu", "reference", "opencl", "cuda", "bang"};

/// Headers of a runtime and the only folder that may include them.
struct RuntimeHeader {
  std::string_view name;
  std::string_view folder;
};
constexpr std::array<RuntimeHeader, 7> kRuntimeHeaders = {{{"CL/cl.h", "kernels/opencl"},
                                                           {"CL/opencl.h", "kernels/opencl"},
                                                           {"clblast.h", "kernels/opencl"},
                                                           {"clblast_c.h", "kernels/opencl"},
                                                           {"cuda.h", "kernels/cuda"},
                                                           {"cuda_runtime.h", "kernels/cuda"},
                                                           {"cnrt.h", "kernels/bang"}}};

/// Words that say nothing about what a file holds. Plurals count too.
constexpr std::array<std::string_view, 8> kEmptyWords = {"util",    "utility", "helper", "common",
                                                         "manager", "impl",    "base",   "misc"};

constexpr size_t kMaxLines = 800;

/// Position of the file's top folder in kLayers, or -1.
int layer_of(const fs::path& file) {
  const std::string top = file.begin() == file.end() ? "" : file.begin()->string();
  const auto found = std::find(kLayers.begin(), kLayers.end(), top);
  return found == kLayers.end() ? -1 : static_cast<int>(found - kLayers.begin());
}

/// "opencl" for a file in kernels/opencl/, "" for files of no runtime.
std::string runtime_of(const fs::path& file) {
  auto part = file.begin();
  if (part == file.end() || *part++ != "kernels" || part == file.end()) return "";
  const std::string folder = part->string();
  return std::find(kRuntimes.begin(), kRuntimes.end(), folder) == kRuntimes.end() ? "" : folder;
}

bool is_inside(const fs::path& file, std::string_view folder) {
  return file.generic_string().starts_with(std::string(folder) + "/");
}

/// What an #include line names, "" for other lines.
std::string included(std::string_view line) {
  const auto skip_blanks = [&line] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip_blanks();
  if (!line.starts_with("#")) return "";
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return "";
  line.remove_prefix(7);
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return "";
  const size_t end = line.find(line[0] == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? "" : std::string(line.substr(1, end - 1));
}

void check_include(const fs::path& root, const fs::path& file, const std::string& name, Lines& broken) {
  // As the compiler searches: beside the file first, then from the root.
  const fs::path beside = (file.parent_path() / name).lexically_normal();
  const fs::path target = fs::exists(root / beside) ? beside : fs::path(name).lexically_normal();
  const std::string what = file.string() + " includes " + name;
  if (layer_of(target) > layer_of(file))
    broken.push_back(what + ": includes go gguf <- kernels <- model <- engine <- tools");
  if (!runtime_of(file).empty() && !runtime_of(target).empty() && runtime_of(file) != runtime_of(target)) {
    broken.push_back(what + ": the folders of kernels/ never include each other");
  }
  for (const RuntimeHeader& header : kRuntimeHeaders) {
    if ((name == header.name || name.ends_with(std::string("/").append(header.name))) &&
        !is_inside(file, header.folder)) {
      broken.push_back(what + ": it stays inside " + std::string(header.folder));
    }
  }
}

/// Words of a name, in lower case: "BlockUtil_v2" gives block, util, v2.
Lines words_of(const std::string& name) {
  Lines words(1);
  char previous = '_';
  for (const char c : name) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!letter ||
        (std::isupper(static_cast<unsigned char>(c)) && std::islower(static_cast<unsigned char>(previous)))) {
      words.emplace_back();
    }
    if (letter) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    previous = c;
  }
  return words;
}

bool is_empty_word(const std::string& word) {
  return std::any_of(kEmptyWords.begin(), kEmptyWords.end(), [&](std::string_view empty) {
    return word == empty || word == std::string(empty) + "s" || (empty == "utility" && word == "utilities");
  });
}

void check_name(const fs::path& file, Lines& broken) {
  for (const fs::path& part : file) {
    for (const std::string& word : words_of(part.stem().string())) {
      if (is_empty_word(word)) broken.push_back(file.string() + ": '" + word + "' says nothing; name what it holds");
    }
  }
}

/// C, C++ and kernel text open with // or /*; scripts with #, after the line that names the interpreter; Python also
/// with """.
bool opens_with_comment(const fs::path& file, const Lines& lines) {
  const bool script = file.extension() == ".sh" || file.extension() == ".py";
  const size_t first = script && !lines.empty() && lines[0].starts_with("#!") ? 1 : 0;
  if (first >= lines.size()) return false;
  const std::string& line = lines[first];
  if (!script) return line.starts_with("//") || line.starts_with("/*");
  return line.starts_with("#") || (file.extension() == ".py" && line.starts_with("\"\"\""));
}

Lines read_lines(const fs::path& path) {
  std::ifstream in(path);
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// All places below `root` that break a rule, one line each.
Lines broken_rules(const fs::path& root) {
  constexpr std::array<std::string_view, 12> kExtensions = {".cpp", ".h",  ".hpp", ".c",   ".inc", ".cl",
                                                            ".clh", ".cu", ".cuh", ".mlu", ".sh",  ".py"};
  Lines broken;
  for (const std::string_view layer : kLayers) {
    if (!fs::is_directory(root / layer)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / layer)) {
      const fs::path file = entry.path().lexically_relative(root);
      const std::string extension = file.extension().string();
      if (!entry.is_regular_file() ||
          std::find(kExtensions.begin(), kExtensions.end(), extension) == kExtensions.end()) {
        continue;
      }
      const Lines lines = read_lines(entry.path());
      check_name(file, broken);
      if (!opens_with_comment(file, lines)) broken.push_back(file.string() + ": opens without a comment");
      if (extension != ".inc" && lines.size() > kMaxLines) {
        broken.push_back(file.string() + ": " + std::to_string(lines.size()) + " lines, at most " +
                         std::to_string(kMaxLines));
      }
      for (const std::string& line : lines) {
        if (const std::string name = included(line); !name.empty()) check_include(root, file, name, broken);
      }
    }
  }
  std::sort(broken.begin(), broken.end());
  return broken;
}

/// A source tree that lives as long as the test.
class Rules : public testing::Test {
 protected:
  Rules() : root_(fs::temp_directory_path() / ("lamina_rules_" + std::to_string(::getpid()))) {
    fs::create_directories(root_);
  }
  ~Rules() override { fs::remove_all(root_); }

  /// Writes a file: its opening comment, then `text`.
  void write(const std::string& file, const std::string& text) { write_raw(file, "// What it holds.\n" + text); }
  void write_raw(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  /// Expects exactly one broken rule, in a line that contains `part`.
  void expect_broken(const std::string& part) {
    const Lines broken = broken_rules(root_);
    ASSERT_EQ(broken.size(), 1u) << testing::PrintToString(broken);
    EXPECT_NE(broken[0].find(part), std::string::npos) << broken[0];
  }
  void expect_kept() { EXPECT_EQ(broken_rules(root_), Lines{}); }

  fs::path root_;
};

TEST_F(Rules, SourceTreeKeepsThem) {
  ASSERT_TRUE(fs::is_regular_file(fs::path(LAMINA_SOURCE_DIR) / "tests/rules_test.cpp"));
  EXPECT_EQ(broken_rules(LAMINA_SOURCE_DIR), Lines{});
}

TEST_F(Rules, IncludesDownAndSystemHeadersAreFine) {
  write("tools/run.cpp", "#include <vector>\n#include \"engine/engine.h\"\n#include \"gguf/file.h\"\n");
  write("tests/all_test.cpp", "#include \"tools/verbs.h\"\n#include \"kernels/cpu/device.h\"\n");
  write("kernels/cpu/device.cpp", "#include \"kernels/op.h\"\n#include \"device.h\"\n#include \"gguf/type.h\"\n");
  expect_kept();
}

TEST_F(Rules, EveryIncludeUpwardsFails) {
  for (size_t low = 0; low < kLayers.size(); ++low) {
    for (size_t high = low + 1; high < kLayers.size(); ++high) {
      write(std::string(kLayers[low]) + "/a.cpp", "#include \"" + std::string(kLayers[high]) + "/b.h\"\n");
      expect_broken(std::string(kLayers[low]) + "/a.cpp includes " + std::string(kLayers[high]) + "/b.h: includes go");
    }
    fs::remove_all(root_ / kLayers[low]);
  }
}

TEST_F(Rules, IncludeUpwardsInOtherSpellingsFails) {
  write("model/b.h", "");
  write("gguf/a.cpp", "  #  include <model/b.h>  // why not\n");
  expect_broken("includes go");
  write("gguf/a.cpp", "#include \"../model/b.h\"\n");
  expect_broken("includes go");
}

TEST_F(Rules, RuntimeThatIncludesAnotherFails) {
  for (const std::string_view from : kRuntimes) {
    for (const std::string_view to : kRuntimes) {
      if (from == to) continue;
      write("kernels/" + std::string(from) + "/a.cpp", "#include \"kernels/" + std::string(to) + "/b.h\"\n");
      expect_broken("never include each other");
    }
    fs::remove_all(root_ / "kernels");
  }
}

TEST_F(Rules, RuntimeHeaderOutsideItsFolderFails) {
  for (const RuntimeHeader& header : kRuntimeHeaders) {
    const std::string text = "#include <" + std::string(header.name) + ">\n";
    write(std::string(header.folder) + "/a.cpp", text);
    expect_kept();
    for (const char* file : {"kernels/a.cpp", "kernels/cpu/a.cpp", "tools/a.cpp", "tests/a.cpp"}) {
      write(file, text);
      expect_broken("stays inside");
      fs::remove(root_ / file);
    }
  }
}

TEST_F(Rules, LongFileFailsAndDataMayBeLong) {
  std::string text;  // with the opening comment, exactly kMaxLines lines
  for (size_t i = 1; i < kMaxLines; ++i) text += "int x;\n";
  write("gguf/a.cpp", text);
  write("gguf/codebooks.inc", text + text);
  expect_kept();
  write("gguf/a.cpp", text + "int y;\n");
  expect_broken("801 lines");
}

TEST_F(Rules, EmptyNamesFail) {
  for (const std::string_view word : kEmptyWords) {
    const std::string name(word);
    const std::string capital = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0]))) + name.substr(1);
    for (const std::string& file : {name + ".h", "string_" + name + "s.cpp", "file" + capital + ".h", name + "/a.h"}) {
      write("gguf/" + file, "");
      expect_broken("says nothing");
      fs::remove_all(root_ / "gguf");
    }
  }
  write("gguf/simple_database.cpp", "");  // words are compared, not their letters
  expect_kept();
}

TEST_F(Rules, FileWithoutOpeningCommentFails) {
  for (const char* file :
       {"gguf/a.cpp", "kernels/a.cl", "kernels/cuda/a.cu", "tools/a.sh", "tests/a.py", "gguf/a.inc"}) {
    for (const char* text : {"", "\n", "int x;\n// late\n", "#!/usr/bin/env bash\nset -e\n"}) {
      write_raw(file, text);
      expect_broken("opens without a comment");
    }
    fs::remove(root_ / file);
  }
  write_raw("tools/a.sh", "#!/usr/bin/env bash\n# What it does.\n");
  write_raw("tests/a.py", "\"\"\"What it does.\"\"\"\n");
  write_raw("gguf/a.h", "/* What it holds. */\n");
  expect_kept();
}

}  // namespace
