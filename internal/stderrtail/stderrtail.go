// SPDX-License-Identifier: Apache-2.0

// Package stderrtail keeps the end of what a process writes to its standard error, for the message that says how it
// ended. In: bytes, from any goroutine. Out: text.
package stderrtail

import (
	"bytes"
	"strings"
	"sync"
)

// size is how many bytes are kept, a screenful.
const size = 4096

// Tail keeps the last few kilobytes of what is written to it. The zero Tail is ready. It never fails.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *Tail) Write(part []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, part...)
	if len(t.text) > size {
		t.text = bytes.Clone(t.text[len(t.text)-size:])
	}
	return len(part), nil
}

// String is what was kept, without surrounding space.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.text)), "?")
}

// LastLine is the last line that was written.
func (t *Tail) LastLine() string {
	text := t.String()
	return text[strings.LastIndexByte(text, '\n')+1:]
}
