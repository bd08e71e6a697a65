// Precompiled into every test, behind LibTorch's headers where it has them: two seconds a file otherwise.
// Sources still include what they use.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
