// SPDX-License-Identifier: Apache-2.0
// The cheapest program there is, for tests and for measuring what starting one costs.
int main() {
  return 0;
}
