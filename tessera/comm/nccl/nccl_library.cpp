#include "tessera/comm/nccl/nccl_library.h"

#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "tessera/core/cuda_library.h"
#include "tessera/core/error.h"

namespace tessera::comm::detail {
namespace {

// Of nccl.h.
constexpr int kSuccess = 0, kInProgress = 7, kUint8 = 1;
constexpr int kOldest = 21800, kTooNew = 30000;

constexpr std::string_view kName = "libnccl.so.2";

// In the order in which they are tried. A library that is loaded already, as libtorch_cuda's own is, is found
// by its name.
std::vector<std::string> candidates() {
  std::vector<std::string> paths = {std::string(kName)};
  if (const std::string folder = cuda::libtorch_folder(); !folder.empty()) {
    // A wheel of torch lies beside those of NVIDIA: torch/lib and nvidia/nccl/lib.
    for (const char* place : {"/", "/../../nvidia/nccl/lib/"}) {
      std::string path = folder;
      path += place;
      path += kName;
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

Error unusable(const std::string& what) { return Error(ErrorKind::Config, "NCCL", what); }

template <class Function>
bool has(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

template <class Function>
void find(void* library, const char* name, Function& function, const std::string& path) {
  if (!has(library, name, function))
    throw unusable("'" + path + "' is no NCCL that can be used").got("no " + std::string(name));
}

}  // namespace

std::shared_ptr<const NcclLibrary> NcclLibrary::open(const std::string& path) {
  void* handle = nullptr;
  std::string used, why;
  for (const std::string& candidate : path.empty() ? candidates() : std::vector<std::string>{path}) {
    handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    used = candidate;
    if (handle != nullptr) break;
    if (const char* error = dlerror(); error != nullptr && why.empty()) why = error;
  }
  if (handle == nullptr) {
    throw unusable("several ranks on CUDA devices need NCCL, which cannot be opened")
        .got(why)
        .need(path.empty() ? std::string(kName) : path)
        .hint("it comes with torch for CUDA (nvidia/nccl/lib); LD_LIBRARY_PATH can name its folder");
  }
  // Never closed: it has threads of its own.
  const std::shared_ptr<NcclLibrary> nccl(new NcclLibrary);
  nccl->path_ = used;
  find(handle, "ncclGetVersion", nccl->get_version_, used);
  find(handle, "ncclGetUniqueId", nccl->get_unique_id_, used);
  find(handle, "ncclCommInitRank", nccl->comm_init_rank_, used);
  find(handle, "ncclCommDestroy", nccl->comm_destroy_, used);
  find(handle, "ncclCommAbort", nccl->comm_abort_, used);
  find(handle, "ncclCommGetAsyncError", nccl->comm_get_async_error_, used);
  find(handle, "ncclGetErrorString", nccl->get_error_string_, used);
  find(handle, "ncclGetLastError", nccl->get_last_error_, used);
  find(handle, "ncclGroupStart", nccl->group_start_, used);
  find(handle, "ncclGroupEnd", nccl->group_end_, used);
  find(handle, "ncclAllGather", nccl->all_gather_, used);
  find(handle, "ncclBroadcast", nccl->broadcast_, used);
  find(handle, "ncclSend", nccl->send_, used);
  find(handle, "ncclRecv", nccl->recv_, used);
  const bool registers = has(handle, "ncclMemAlloc", nccl->mem_alloc_) &&
                         has(handle, "ncclMemFree", nccl->mem_free_) &&
                         has(handle, "ncclCommRegister", nccl->comm_register_) &&
                         has(handle, "ncclCommDeregister", nccl->comm_deregister_);
  if (!registers) nccl->mem_alloc_ = nullptr;
  nccl->check(nccl->get_version_(&nccl->version_), "ncclGetVersion");
  if (nccl->version_ < kOldest || nccl->version_ >= kTooNew) {
    throw unusable("'" + used + "' is an NCCL of another version")
        .got(std::to_string(nccl->version_))
        .need(std::to_string(kOldest) + " (2.18) to below " + std::to_string(kTooNew));
  }
  return nccl;
}

void NcclLibrary::check(Result result, const char* function, NcclHandle comm) const {
  if (result == kSuccess) return;
  throw Error(ErrorKind::Peer, "NCCL", std::string(function) + " failed: " + words_for(result, comm));
}

std::string NcclLibrary::words_for(Result result, NcclHandle comm) const {
  std::string words = get_error_string_(result);
  if (const char* more = get_last_error_(comm); more != nullptr && *more != '\0')
    words += std::string(": ") + more;
  return words;
}

NcclId NcclLibrary::make_id() const {
  NcclId id;
  check(get_unique_id_(&id), "ncclGetUniqueId");
  return id;
}

NcclHandle NcclLibrary::init_rank(const NcclId& id, int size, int rank) const {
  NcclHandle comm = nullptr;
  try {
    check(comm_init_rank_(&comm, size, id, rank), "ncclCommInitRank");
  } catch (Error& error) {
    throw error.hint("every rank needs a device of its own; NCCL_DEBUG=INFO tells more");
  }
  return comm;
}

void NcclLibrary::all_gather(const void* input, void* output, size_t num_bytes, NcclHandle comm,
                             NativeStream stream) const {
  check(all_gather_(input, output, num_bytes, kUint8, comm, stream), "ncclAllGather", comm);
}

void NcclLibrary::broadcast(const void* input, void* output, size_t num_bytes, int root, NcclHandle comm,
                            NativeStream stream) const {
  check(broadcast_(input, output, num_bytes, kUint8, root, comm, stream), "ncclBroadcast", comm);
}

void NcclLibrary::send(const void* input, size_t num_bytes, int peer, NcclHandle comm,
                       NativeStream stream) const {
  check(send_(input, num_bytes, kUint8, peer, comm, stream), "ncclSend", comm);
}

void NcclLibrary::recv(void* output, size_t num_bytes, int peer, NcclHandle comm, NativeStream stream) const {
  check(recv_(output, num_bytes, kUint8, peer, comm, stream), "ncclRecv", comm);
}

void* NcclLibrary::allocate(size_t num_bytes) const noexcept {
  void* memory = nullptr;
  return mem_alloc_ != nullptr && mem_alloc_(&memory, num_bytes) == kSuccess ? memory : nullptr;
}

void NcclLibrary::free(void* memory) const noexcept { static_cast<void>(mem_free_(memory)); }

void* NcclLibrary::register_memory(NcclHandle comm, void* memory, size_t num_bytes) const {
  void* registration = nullptr;
  check(comm_register_(comm, memory, num_bytes, &registration), "ncclCommRegister", comm);
  return registration;
}

void NcclLibrary::deregister(NcclHandle comm, void* registration) const {
  check(comm_deregister_(comm, registration), "ncclCommDeregister", comm);
}

void NcclLibrary::destroy(NcclHandle comm) const { check(comm_destroy_(comm), "ncclCommDestroy"); }

void NcclLibrary::abort(NcclHandle comm) const noexcept { static_cast<void>(comm_abort_(comm)); }

std::string NcclLibrary::async_error(NcclHandle comm) const {
  Result state = kSuccess;
  const Result result = comm_get_async_error_(comm, &state);
  if (result != kSuccess) state = result;
  return state == kSuccess || state == kInProgress ? "" : words_for(state, comm);
}

NcclLibrary::GroupScope::GroupScope(const NcclLibrary& library) : library_(library) {
  library_.check(library_.group_start_(), "ncclGroupStart");
}

NcclLibrary::GroupScope::~GroupScope() {
  if (is_open_) static_cast<void>(library_.group_end_());
}

void NcclLibrary::GroupScope::end() {
  is_open_ = false;
  library_.check(library_.group_end_(), "ncclGroupEnd");
}

}  // namespace tessera::comm::detail
