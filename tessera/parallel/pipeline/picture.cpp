#include "tessera/parallel/pipeline/picture.h"

#include <algorithm>

namespace tessera::parallel {
namespace {

std::string cell(const Schedule& schedule, const Action& action) {
  constexpr const char* kLetters[] = {"F", "B", "B", "W"};
  std::string text = kLetters[static_cast<int>(action.kind)] + std::to_string(action.micro_batch);
  const int64_t local = action.stage / schedule.num_ranks;
  if (schedule.num_stages > schedule.num_ranks) text += static_cast<char>('a' + local % 26);
  return text;
}

}  // namespace

std::string picture_of(const Schedule& schedule, const Timeline& timeline) {
  size_t width = 1;
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) width = std::max(width, cell(schedule, action).size());
  }
  const std::string last = std::to_string(schedule.num_ranks - 1);
  std::string picture;
  for (size_t rank = 0; rank < timeline.slots.size(); ++rank) {
    std::string number = std::to_string(rank);
    number.insert(0, last.size() - number.size(), ' ');
    picture += "rank " + number + " |";
    int64_t now = 0;
    const auto put = [&](std::string text, char fill) {
      text.resize(width, fill);
      picture += ' ' + text;
      ++now;
    };
    for (const Timeline::Slot& slot : timeline.slots[rank]) {
      while (now < slot.begin) put(".", ' ');
      if (slot.end > slot.begin) put(cell(schedule, slot.action), ' ');
      while (now < slot.end) put("=", '=');
    }
    while (now < timeline.length) put(".", ' ');
    picture.resize(picture.find_last_not_of(' ') + 1);
    picture += '\n';
  }
  return picture;
}

}  // namespace tessera::parallel
