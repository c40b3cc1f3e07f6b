// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"syscall"
)

// FullDisk is a full disk that another process met.
type FullDisk struct{ Detail string }

func (e *FullDisk) Error() string { return e.Detail }
func (e *FullDisk) Unwrap() error { return syscall.ENOSPC }

// oneLine is an error's first line, cut: what TVM says goes on for pages.
func oneLine(err error) string {
	line, _, more := strings.Cut(err.Error(), "\n")
	const width = 300
	if len(line) > width {
		line, more = strings.ToValidUTF8(line[:width], ""), true
	}
	if more {
		line += " ..."
	}
	return line
}
