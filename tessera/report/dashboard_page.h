// The page that follows runs while they go on.
#pragma once

#include <string>

namespace tessera::report {

// Makes one HTML page that needs nothing but the routes of its server (serving/dashboard.h). It has a table
// of the runs and the charts of page(), which grow as the runs write.
std::string dashboard_page();

}  // namespace tessera::report
