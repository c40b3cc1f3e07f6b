// SPDX-License-Identifier: Apache-2.0

package main

// extern char **environ;
// static const char *entry(int at) { return environ == 0 ? 0 : environ[at]; }
import "C"

import (
	"os"
	"strings"
)

// adoptEnvironment has Go see the variables of this process as they are now. Go reads what the process was started with;
// what Python has set since then (os.environ) is C's alone.
func adoptEnvironment() error {
	var entries []string
	for at := C.int(0); ; at++ {
		entry := C.entry(at)
		if entry == nil {
			break
		}
		entries = append(entries, C.GoString(entry))
	}
	there := map[string]bool{}
	for _, entry := range entries {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		there[name] = true
		if known, ok := os.LookupEnv(name); ok && known == value {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); name != "" && !there[name] {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}
