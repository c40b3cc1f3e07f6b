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

const tracebackBegins = "Traceback (most recent call last):"

// oneLine is an error's first line, cut: what TVM says goes on for pages.
func oneLine(err error) string {
	line, _, more := strings.Cut(err.Error(), "\n")
	if strings.HasSuffix(line, tracebackBegins) {
		// A stack of TVM's: what it says stands at the end.
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		line, more = strings.TrimSpace(lines[len(lines)-1]), false
	}
	const width = 300
	if len(line) > width {
		line, more = strings.ToValidUTF8(line[:width], ""), true
	}
	if more {
		line += " ..."
	}
	return line
}
