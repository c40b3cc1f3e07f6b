// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/nearest"
)

// registry holds the backends by name. A process has one, as it has one TVM.
var registry = struct {
	sync.RWMutex
	byName map[string]Backend
}{byName: map[string]Backend{}}

// A backend's name must work in --backends a,b and in the names of stored costs; a Compiler attribute becomes
// part of a C symbol (tvmgen_default_<compiler>_main_0).
var (
	nameForm      = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	compilerForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	kernelForm    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	compositeForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$`)
)

// Register adds a backend to the registry of this process. The error names the field that is at fault; a
// backend whose name is taken is refused, and the one that is there stays.
func Register(b Backend) error {
	if err := Validate(b); err != nil {
		return err
	}
	registry.Lock()
	defer registry.Unlock()
	name := b.Name()
	if _, taken := registry.byName[name]; taken {
		return fmt.Errorf("byoc: Name: a backend named %q is already registered", name)
	}
	if c := b.Compiler(); c != "" {
		for _, other := range registry.byName {
			if other.Compiler() == c && !(SharesCompiler(b) && SharesCompiler(other)) {
				return fmt.Errorf("byoc: backend %q: Compiler: %q already belongs to the backend %q", name, c,
					other.Name())
			}
		}
	}
	registry.byName[name] = b
	return nil
}

// Remove takes a backend out of the registry, if it is this one that is there under its name. Searches that are at work
// keep it.
func Remove(b Backend) {
	registry.Lock()
	defer registry.Unlock()
	if registry.byName[b.Name()] == b {
		delete(registry.byName, b.Name())
	}
}

// Lookup finds a registered backend. The error is an *UnknownBackendError.
func Lookup(name string) (Backend, error) {
	registry.RLock()
	defer registry.RUnlock()
	if b, ok := registry.byName[name]; ok {
		return b, nil
	}
	known := make([]string, 0, len(registry.byName))
	for n := range registry.byName {
		known = append(known, n)
	}
	sort.Strings(known)
	return nil, &UnknownBackendError{Name: name, Nearest: nearest.Word(name, known), Known: known}
}

// All gives the registered backends, sorted by name.
func All() []Backend {
	registry.RLock()
	defer registry.RUnlock()
	all := make([]Backend, 0, len(registry.byName))
	for _, b := range registry.byName {
		all = append(all, b)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all
}

// Reset empties the registry and gives a function that puts back what was there. It is for tests.
func Reset() (restore func()) {
	registry.Lock()
	defer registry.Unlock()
	saved := registry.byName
	registry.byName = map[string]Backend{}
	return func() {
		registry.Lock()
		defer registry.Unlock()
		registry.byName = saved
	}
}

// Validate says whether a backend's description is complete and consistent. The error names the first field
// that is at fault.
func Validate(b Backend) error {
	if b == nil {
		return fmt.Errorf("byoc: the backend is nil")
	}
	name := b.Name()
	if !nameForm.MatchString(name) {
		return fmt.Errorf("byoc: Name: %q is not a backend name (lower case letters, digits, '-' and '_', a letter "+
			"first)", name)
	}
	fault := func(field, format string, args ...any) error {
		return fmt.Errorf("byoc: backend %q: %s: %s", name, field, fmt.Sprintf(format, args...))
	}
	if d := b.Description(); strings.TrimSpace(d) == "" || strings.Contains(d, "\n") {
		return fault("Description", "must be one line of text, is %q", d)
	}
	if l := b.Level(); l != OperatorLevel && l != GraphLevel {
		return fault("Level", "%d is neither OperatorLevel nor GraphLevel", l)
	}
	patterns := b.Patterns()
	if b.TakesAnything() {
		if len(patterns) > 0 {
			return fault("Patterns", "a backend that takes anything (TakesAnything) has no patterns, this one has %d",
				len(patterns))
		}
	} else {
		if len(patterns) == 0 && !takesOtherwise(b) {
			return fault("Patterns", "is empty, and so are rules and proposers; TakesAnything is false: the backend "+
				"could take nothing")
		}
		if b.Compiler() == "" {
			return fault("Compiler", "is empty, but the backend takes patterns: TVM would not know whom to call")
		}
	}
	if c := b.Compiler(); c != "" && !compilerForm.MatchString(c) {
		return fault("Compiler", "%q cannot be part of a symbol name (letters, digits and '_')", c)
	}
	for i, p := range patterns {
		if err := validatePattern(p); err != nil {
			return fault(fmt.Sprintf("Patterns[%d].%s", i, err.field), "%s", err.text)
		}
	}
	if d, ok := b.(*defined); ok {
		if field, text := d.fault(); field != "" {
			return fault(field, "%s", text)
		}
	}
	return nil
}

// takesOtherwise says that a backend has candidates though it has no patterns.
func takesOtherwise(b Backend) bool {
	if RulesOf(b) != nil {
		return true
	}
	if d, ok := b.(*defined); ok {
		return d.d.Propose != nil
	}
	_, proposes := b.(Proposer)
	_, matches := b.(Matcher)
	return proposes || matches
}

type patternFault struct{ field, text string }

func validatePattern(p Pattern) *patternFault {
	if p.Composite == "" {
		return &patternFault{"Composite", "is empty"}
	}
	if !p.Bare && !compositeForm.MatchString(p.Composite) {
		return &patternFault{"Composite", fmt.Sprintf("%q is not of the form compiler.pattern", p.Composite)}
	}
	if p.Shape == nil {
		return &patternFault{"Shape", fmt.Sprintf("of %q is nil", p.Composite)}
	}
	if p.Limits != nil && strings.TrimSpace(p.LimitsText) == "" {
		return &patternFault{"LimitsText", fmt.Sprintf("of %q is empty although it has Limits", p.Composite)}
	}
	if p.Kernel != "" && !kernelForm.MatchString(p.Kernel) {
		return &patternFault{"Kernel", fmt.Sprintf("of %q is %q (lower case letters, digits and '_', a letter first)",
			p.Composite, p.Kernel)}
	}
	return nil
}

// UnknownBackendError says that no backend of a name is registered.
type UnknownBackendError struct {
	// Name is what was asked for.
	Name string
	// Nearest is the registered name closest to it; "" where none is close.
	Nearest string
	// Known are all registered names, sorted.
	Known []string
}

// Error gives the name, the nearest known one and all known ones.
func (e *UnknownBackendError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "unknown backend %q", e.Name)
	if e.Nearest != "" {
		fmt.Fprintf(&s, ": did you mean %q?", e.Nearest)
	}
	if len(e.Known) > 0 {
		fmt.Fprintf(&s, " (known: %s)", strings.Join(e.Known, ", "))
	}
	return s.String()
}

// Exception is what Python is told.
func (e *UnknownBackendError) Exception() bridge.Exception {
	return bridge.Exception{Class: "BackendError", Backend: e.Name}
}
