// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/cost"
)

// UnusableError says that a backend that was asked for cannot be used here.
type UnusableError struct {
	Backend string
	// Reason says why, Remedy what to do about it.
	Reason, Remedy string
}

func (e *UnusableError) Error() string {
	return fmt.Sprintf("the backend %q cannot be used here: %s", e.Backend, e.Text())
}

// Exception is what Python is told.
func (e *UnusableError) Exception() bridge.Exception {
	return bridge.Exception{Class: "BackendError", Backend: e.Backend}
}

func (e *UnusableError) Text() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Remedy
}

// Usable gives the backends of a configuration. Those that cannot be used are given apart, as long as any is left, with
// SkipUnusable; and without it where they could be used before: a library that vanishes between two runs must not end
// the second one, but whoever names a library that was never there is told so.
func Usable(cfg *Config) (backends []byoc.Backend, absent []*UnusableError, err error) {
	names := cfg.Backends
	for {
		backends, err = LookupBackends(names)
		var unusable *UnusableError
		if !errors.As(err, &unusable) || len(names) == 1 || slices.Contains(cfg.OnlyNames(), unusable.Backend) {
			return backends, absent, err
		}
		switch {
		case cfg.SkipUnusable && cfg.Strict:
			return backends, absent, &StrictError{unusable.Error() + ", and would be left out"}
		case cfg.SkipUnusable:
		case cfg.Estimator != nil || !MeasuredBefore(cfg.Store, unusable.Backend):
			return backends, absent, err
		default:
			if err := cfg.Warning(VanishedWarning(unusable.Backend, unusable.Text())); err != nil {
				return backends, absent, err
			}
		}
		absent = append(absent, unusable)
		names = slices.DeleteFunc(slices.Clone(names),
			func(name string) bool { return strings.TrimSpace(name) == unusable.Backend })
	}
}

// MeasuredBefore says that a store ("" for the user's) has costs of a backend: its library was here once. A store that
// is not there or cannot be read has none.
func MeasuredBefore(store, backend string) bool {
	path, err := cost.StorePath(store)
	if err != nil {
		return false
	}
	if _, err := os.Stat(path); err != nil {
		return false
	}
	s, err := cost.OpenStore(path)
	if err != nil {
		return false
	}
	defer s.Close()
	return slices.ContainsFunc(s.Entries(), func(e cost.Entry) bool { return e.Key.Backend == backend })
}

// VanishedWarning is what is said of a backend that is left out because its library has gone.
func VanishedWarning(backend, reason string) string {
	return fmt.Sprintf("the backend %q was measured before and cannot be used any more; it is left out: %s", backend,
		reason)
}

// LookupBackends finds the backends by their names and makes sure that they can be used. It gives them in the order
// of the names, and makes their code generators known to TVM.
func LookupBackends(names []string) ([]byoc.Backend, error) {
	backends, err := FindBackends(names)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		if r, ok := b.(byoc.Refresher); ok {
			r.Refresh()
		}
		declared := byoc.DeclarationOf(b) != nil // a plan can do without the library and the device
		if probe := b.Probe(); !probe.Usable && !declared {
			return nil, &UnusableError{Backend: b.Name(), Reason: probe.Reason, Remedy: probe.Remedy}
		}
		if err := b.Install(); err != nil && !declared {
			return nil, &UnusableError{Backend: b.Name(), Reason: err.Error()}
		}
	}
	return backends, nil
}

// FindBackends finds the backends by their names.
func FindBackends(names []string) ([]byoc.Backend, error) {
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

func NamesOf(backends []byoc.Backend) []string {
	names := make([]string, len(backends))
	for i, b := range backends {
		names[i] = b.Name()
	}
	return names
}
