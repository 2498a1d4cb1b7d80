# SPDX-License-Identifier: Apache-2.0
# Made from _async/__init__.py by scripts/make-sync; change that.
