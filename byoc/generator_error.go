// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// GeneratorError is why a backend's code generator made nothing of a region.
type GeneratorError struct {
	// Backend is the backend's name.
	Backend string
	// Operator is the one in question, as Relay calls it, and Span where it comes from; zero where nobody knows.
	Operator string
	Span     relay.Span
	// Err is what the code generator said.
	Err error
}

// Error begins with the kind of exception that Err names, ValueError where it names none.
func (e *GeneratorError) Error() string {
	kind, said := bridge.SplitException(e.Err.Error())
	if kind == "" {
		kind = "ValueError"
	}
	return fmt.Sprintf("%s: the code generator of the backend %s: %s", kind, e.Place(), said)
}

// Place is "NAME, at OPERATOR (SPAN)", as far as these are known.
func (e *GeneratorError) Place() string {
	if e.Operator == "" {
		return e.Backend
	}
	at := e.Backend + ", at " + e.Operator
	if where := e.Span.String(); where != "" {
		at += " (" + where + ")"
	}
	return at
}

// Unwrap gives Err.
func (e *GeneratorError) Unwrap() error { return e.Err }

// Exception is what Python is told.
func (e *GeneratorError) Exception() bridge.Exception {
	return bridge.Exception{Class: "BackendError", Backend: e.Backend, Operator: e.Operator, Span: e.Span.String()}
}

// generatorFailed gives an error of a backend's code generator the backend's name, unless it has one. An exception of
// Python's stays what it is.
func generatorFailed(backend string, err error) error {
	var known *GeneratorError
	var foreign *bridge.Error
	if err == nil || errors.As(err, &known) || errors.As(err, &foreign) && foreign.Python() {
		return err
	}
	return &GeneratorError{Backend: backend, Err: err}
}

// BackendOf names the backend whose code generator has a compiler; of several that share it the one whose pattern a
// composite function is from ("" for none), else the first by name. The compiler itself where there is no such backend.
func BackendOf(compiler, composite string) string {
	name := compiler
	for _, b := range All() {
		if b.Compiler() != compiler {
			continue
		}
		if name == compiler {
			name = b.Name()
		}
		for _, pattern := range b.Patterns() {
			if composite != "" && pattern.Composite == composite {
				return b.Name()
			}
		}
	}
	return name
}
