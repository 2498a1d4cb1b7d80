// SPDX-License-Identifier: Apache-2.0
// Beast's non-template code, compiled once for the whole program.
#include <boost/beast/src.hpp>
