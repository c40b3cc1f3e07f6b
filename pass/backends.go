// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
)

// UnusableError says that a backend that was asked for cannot be used here.
type UnusableError struct {
	Backend string
	// Reason says why, Remedy what to do about it.
	Reason, Remedy string
}

func (e *UnusableError) Error() string {
	return fmt.Sprintf("the backend %q cannot be used here: %s", e.Backend, e.text())
}

func (e *UnusableError) text() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Remedy
}

// usable gives the backends of a configuration. With SkipUnusable those that cannot be used are given apart, as long as
// any is left.
func usable(cfg *Config) (backends []byoc.Backend, absent []*UnusableError, err error) {
	names := cfg.Backends
	for {
		backends, err = lookupBackends(names)
		var unusable *UnusableError
		if !cfg.SkipUnusable || !errors.As(err, &unusable) || len(names) == 1 {
			return backends, absent, err
		}
		absent = append(absent, unusable)
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.TrimSpace(name) == unusable.Backend })
	}
}

// lookupBackends finds the backends by their names and makes sure that they can be used. It gives them in the order
// of the names, and makes their code generators known to TVM.
func lookupBackends(names []string) ([]byoc.Backend, error) {
	backends, err := findBackends(names)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		if r, ok := b.(byoc.Refresher); ok {
			r.Refresh()
		}
		if probe := b.Probe(); !probe.Usable {
			return nil, &UnusableError{Backend: b.Name(), Reason: probe.Reason, Remedy: probe.Remedy}
		}
		if err := b.Install(); err != nil {
			return nil, &UnusableError{Backend: b.Name(), Reason: err.Error()}
		}
	}
	return backends, nil
}

// findBackends finds the backends by their names.
func findBackends(names []string) ([]byoc.Backend, error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, err
	}
	var backends []byoc.Backend
	var seen []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "" {
			return nil, &OptionError{"backends", "has an empty name in it"}
		}
		if slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		b, err := byoc.Lookup(name)
		if err != nil {
			return nil, err
		}
		backends = append(backends, b)
	}
	return backends, nil
}

func namesOf(backends []byoc.Backend) []string {
	names := make([]string, len(backends))
	for i, b := range backends {
		names[i] = b.Name()
	}
	return names
}
