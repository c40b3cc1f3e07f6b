// SPDX-License-Identifier: Apache-2.0

package nearest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWord(t *testing.T) {
	commands := []string{"backends", "bench", "compile", "doctor", "run", "version"}
	tests := map[string]string{
		"compil": "compile", "complie": "compile", "Doktor": "doctor", "runn": "run", "ver": "version",
		"backend": "backends", "b": "", "zzzzzz": "", "": "", "unrelated": "",
	}
	for word, want := range tests {
		assert.Equal(t, want, Word(word, commands), word)
	}
	assert.Empty(t, Word("x", nil))
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}} {
		assert.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
	}
}
