// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/decide"
)

// plainClasses are Python's exceptions whose text alone is what a user wants to read.
var plainClasses = map[string]bool{
	"FileNotFoundError": true, "PermissionError": true, "IsADirectoryError": true, "NotADirectoryError": true,
	"OSError": true, "ValueError": true, "ImportError": true, "ExportError": true, "LibraryError": true,
}

// plainError takes the class off an exception that the Python host raised with a text for the user, and makes a
// full disk one that Go knows.
func plainError(err error) error {
	var fromHost *bridge.Error
	if !errors.As(err, &fromHost) {
		return err
	}
	if errors.Is(err, bridge.ErrInterrupted) {
		return err
	}
	text := fromHost.Message
	// str() of an OSError begins with its number: "[Errno 28] ...".
	if strings.HasPrefix(text, "[Errno ") {
		if _, rest, found := strings.Cut(text, "] "); found {
			text = rest
		}
	}
	for _, sign := range []string{"No space left", "no space left", "Disk quota exceeded"} {
		if strings.Contains(text, sign) {
			return &decide.FullDisk{Detail: text}
		}
	}
	if fromHost.Python() && plainClasses[fromHost.Class] {
		return errors.New(text)
	}
	return err
}

// lastMessage is what TVM says, without the class.
func lastMessage(err error) string {
	var fromTVM *bridge.Error
	if errors.As(err, &fromTVM) {
		return fromTVM.Message
	}
	return err.Error()
}
