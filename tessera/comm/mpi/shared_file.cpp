#include "tessera/comm/mpi/shared_file.h"

#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>

#include <fcntl.h>
#include <unistd.h>

namespace tessera::comm::detail {
namespace {

// The token has a page of its own, before the memory that is given out.
constexpr int64_t kTokenBytes = 4096;

}  // namespace

SharedFile::~SharedFile() {
  if (file_ >= 0) close(file_);
}

void SharedFile::map(int64_t num_bytes) {
  const auto size = static_cast<size_t>(kTokenBytes + num_bytes);
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) return;
  memory_ = std::shared_ptr<char>(static_cast<char*>(data) + kTokenBytes,
                                  [data, size](char*) { munmap(data, size); });
}

SharedFileOffer SharedFile::create(int64_t num_bytes) {
  SharedFileOffer offer;
  file_ = memfd_create("tessera", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kTokenBytes + num_bytes) != 0) return offer;
  if (getrandom(&offer.token, sizeof offer.token, 0) != sizeof offer.token) return offer;
  map(num_bytes);
  if (memory_ == nullptr) return offer;
  std::memcpy(memory_.get() - kTokenBytes, &offer.token, sizeof offer.token);
  offer.process = getpid();
  offer.file = file_;
  return offer;
}

void SharedFile::open(const SharedFileOffer& offer, int64_t num_bytes) {
  if (offer.file < 0) return;
  const std::string path = "/proc/" + std::to_string(offer.process) + "/fd/" + std::to_string(offer.file);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  // Another file under this name (a container with processes of its own) must not be touched.
  if (file_ < 0 || lseek(file_, 0, SEEK_END) != kTokenBytes + num_bytes) return;
  int64_t token = 0;
  if (pread(file_, &token, sizeof token, 0) != sizeof token || token != offer.token) return;
  map(num_bytes);
}

}  // namespace tessera::comm::detail
