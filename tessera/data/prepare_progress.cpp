#include "tessera/data/prepare_progress.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"

namespace tessera::data {
namespace {

constexpr auto kPause = std::chrono::seconds(5);
constexpr int64_t kBarWidth = 24;

bool is_compressed(const DatasetFile& file) {
  return file.path.ends_with(".gz") || file.path.ends_with(".zst") || file.path.ends_with(".zstd") ||
         file.format == FileFormat::Table;
}

}  // namespace

PrepareProgress::PrepareProgress(std::string name, const std::vector<DatasetFile>& files)
    : name_(std::move(name)), next_(begin_ + kPause) {
  for (const DatasetFile& file : files) {
    std::error_code ignored;
    total_bytes_ += static_cast<int64_t>(std::filesystem::file_size(file.path, ignored));
    if (!is_compressed(file)) continue;
    total_bytes_ = 0;
    return;
  }
}

void PrepareProgress::tell(const RecordBatch& batch) {
  bytes_ += batch.bytes;
  records_ += static_cast<int64_t>(batch.records.size());
  const auto now = Clock::now();
  if (now < next_) return;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  log::info(prepare_progress_line(name_, bytes_, total_bytes_, records_, seconds));
  next_ = now + kPause;
}

std::string prepare_progress_line(const std::string& name, int64_t bytes, int64_t total_bytes,
                                  int64_t records, double seconds) {
  std::string text = name + ": ";
  const double speed = seconds > 0 ? static_cast<double>(bytes) / seconds : 0.0;
  if (total_bytes > 0) {
    const double share = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_bytes));
    const auto filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
    text += '[' + std::string(filled, '=') + std::string(static_cast<size_t>(kBarWidth) - filled, ' ') +
            "] " + std::to_string(static_cast<int>(share * 100)) + " % ";
  }
  text += format_bytes(bytes) + ' ' + format_bytes(static_cast<int64_t>(speed)) + "/s, " +
          std::to_string(records) + " records";
  if (total_bytes > bytes && speed > 0)
    text += ", " + format_duration(static_cast<double>(total_bytes - bytes) / speed) + " left";
  return text;
}

}  // namespace tessera::data
