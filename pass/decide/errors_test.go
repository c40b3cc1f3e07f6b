// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOneLine(t *testing.T) {
	for of, want := range map[string]string{
		"plain":            "plain",
		"first\nsecond":    "first ...",
		"ValueError: one":  "ValueError: one",
		"\nbehind nothing": " ...",
		"InternalError: Traceback (most recent call last):\n  1: f()\n  0: g()\n  File \"a.cc\", line 7\n" +
			"InternalError: Check failed: it is false: no vectors\n": "InternalError: Check failed: it is false: no vectors",
	} {
		assert.Equal(t, want, oneLine(errors.New(of)))
	}
	assert.Len(t, oneLine(errors.New(strings.Repeat("x", 1000))), 304)
}
