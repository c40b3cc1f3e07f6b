// SPDX-License-Identifier: Apache-2.0

// Package bridge is TVM's C API as Go.
package bridge
