// SPDX-License-Identifier: Apache-2.0

// Package collage gives Go the version that the Python package has.
package collage

import (
	_ "embed"
	"regexp"
)

//go:embed _version.py
var source string

// Version is the version of Collage, as it stands in _version.py.
func Version() string {
	return regexp.MustCompile(`(?m)^__version__ = "(.+)"$`).FindStringSubmatch(source)[1]
}
