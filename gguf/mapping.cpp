// Mapping files, and the SIGBUS handler for files that shrink behind our back.
// In: a path. Out: mapped bytes; while they are mapped, their range and the line to print on a fault stand in a list
// that the handler can walk: it only loads atomics, writes and exits.
#include "gguf/mapping.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "gguf/error.h"

namespace lamina::gguf {
namespace {

constexpr const char* kChanged = "the file was truncated, changed or became unreadable while in use";

/// One mapped range. Nodes are reused but never freed, so that the handler may walk the list at any time.
struct Watched {
  std::atomic<uintptr_t> begin = 0;  // 0: the node is free
  std::atomic<uintptr_t> end = 0;
  std::string line;  // what to print on a fault; written only while the node is free
  Watched* next = nullptr;
};

std::atomic<Watched*> watched_list = nullptr;
std::mutex watched_mutex;
struct sigaction previous_action;
std::atomic_flag reported;

void on_sigbus(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_fault = info->si_code > 0;
  for (Watched* node = watched_list.load(); is_fault && node != nullptr; node = node->next) {
    const uintptr_t begin = node->begin.load();
    if (begin == 0 || address < begin || address >= node->end.load()) continue;
    // Several threads may fault at once: one reports and ends them all.
    while (reported.test_and_set()) pause();
    // The result is of no use here: there is nowhere left to report it.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, node->line.data(), node->line.size());
    _exit(static_cast<int>(ErrorKind::kModel));
  }
  sigaction(SIGBUS, &previous_action, nullptr);  // a fault repeats on return and meets the previous action
  if (!is_fault) raise(SIGBUS);
}

void watch(std::span<const std::byte> bytes, const std::string& path) {
  static std::once_flag installed;
  std::call_once(installed, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
  const std::lock_guard lock(watched_mutex);
  Watched* node = watched_list.load();
  while (node != nullptr && node->begin.load() != 0) node = node->next;
  const bool is_new = node == nullptr;
  if (is_new) {
    node = new Watched;
    node->next = watched_list.load();
  }
  node->line = fmt::format("lamina: {}: {}\n", shown_path(path), kChanged);
  node->end.store(reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size());
  node->begin.store(reinterpret_cast<uintptr_t>(bytes.data()));
  if (is_new) watched_list.store(node);
}

void unwatch(std::span<const std::byte> bytes) {
  const std::lock_guard lock(watched_mutex);
  for (Watched* node = watched_list.load(); node != nullptr; node = node->next) {
    if (node->begin.load() == reinterpret_cast<uintptr_t>(bytes.data())) node->begin.store(0);
  }
}

/// A file descriptor that closes itself.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::string shown_path(const std::string& path) { return printable(path, 1000); }

Mapping::Mapping(const std::string& path) : path_(path) {
  // Without O_NONBLOCK opening a FIFO would wait for a writer.
  Descriptor file{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  if (file.fd < 0) fail(ErrorKind::kModel, "cannot open {}: {}", shown_path(path), std::strerror(errno));
  if (fstat(file.fd, &status_) != 0) {
    fail(ErrorKind::kModel, "cannot examine {}: {}", shown_path(path), std::strerror(errno));
  }
  if (!S_ISREG(status_.st_mode)) {
    fail(ErrorKind::kModel, "{} is {}, not a GGUF file", shown_path(path), kind_of(status_.st_mode));
  }
  if (status_.st_size == 0) fail(ErrorKind::kModel, "{} is an empty file", shown_path(path));
  const auto size = static_cast<size_t>(status_.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (start == MAP_FAILED) {
    fail(ErrorKind::kModel, "cannot map {} ({} bytes): {}", shown_path(path), size, std::strerror(errno));
  }
  bytes_ = {static_cast<const std::byte*>(start), size};
  file_ = std::exchange(file.fd, -1);
  watch(bytes_, path_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, std::span<const std::byte>())),
      file_(other.file_),
      status_(other.status_) {}

Mapping::~Mapping() {
  if (bytes_.empty()) return;
  unwatch(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  close(file_);
}

std::string Mapping::identity() const {
  return fmt::format("{} {} {} {}.{:09}", status_.st_dev, status_.st_ino, status_.st_size, status_.st_mtim.tv_sec,
                     status_.st_mtim.tv_nsec);
}

void Mapping::check_unchanged() const {
  struct stat now;
  if (fstat(file_, &now) == 0 && now.st_size == status_.st_size && now.st_mtim.tv_sec == status_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == status_.st_mtim.tv_nsec) {
    return;
  }
  fail(ErrorKind::kModel, "{}: {}", shown_path(path_), kChanged);
}

void drop_pages(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size() + page - 1) / page * page;
  // A refusal changes nothing: the pages just stay.
  if (!bytes.empty()) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace lamina::gguf
