#include "tessera/core/process_status.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace tessera {

ProcessStatus process_status(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  std::getline(file, text);
  // The line is "ID (NAME) STATE PARENT ...", where a name may hold anything, a ')' too.
  ProcessStatus status;
  const size_t end = text.rfind(')');
  if (end != std::string::npos) std::sscanf(text.c_str() + end, ") %c %d", &status.state, &status.parent);
  return status;
}

}  // namespace tessera
