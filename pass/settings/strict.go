// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
)

// StrictError is a warning that Config.Strict does not let pass: what came out could be other than what was asked for.
type StrictError struct {
	// Warning is what would have been said without Strict.
	Warning string
}

func (e *StrictError) Error() string { return "strict: " + e.Warning }

// Exception is what Python is told.
func (e *StrictError) Exception() bridge.Exception { return bridge.Exception{Class: "StrictError"} }

// Warning tells the user something that is no error, by Warn; with Strict it is one, a *StrictError.
func (c *Config) Warning(text string) error {
	switch {
	case c.Strict:
		return &StrictError{text}
	case c.Warn != nil:
		c.Warn(text)
	default:
		Warn(text)
	}
	return nil
}

// CheckStrict says, with Strict, what can be said before any work: an option that has no effect beside the others, and
// errors that would be taken on random inputs. The error is a *StrictError.
func (c *Config) CheckStrict() error {
	if !c.Strict {
		return nil
	}
	if unused, why := c.unused(); len(unused) > 0 {
		return &StrictError{fmt.Sprintf("%s: no effect, since %s", strings.Join(unused, ", "), why)}
	}
	if c.Limit() != (cost.Limit{}) && c.Calibration == "" {
		return &StrictError{"how far the outputs are off would be found on random inputs; real ones may be less kind. Give " +
			"some of them (calibration)"}
	}
	return nil
}

// unused are the options that say something and have no effect beside the others, and why they have none.
func (c *Config) unused() (names []string, why string) {
	said := func(name string, is bool) {
		if is {
			names = append(names, name)
		}
	}
	switch {
	case c.Only != "":
		said("backends", len(c.Backends) > 0)
		said("devices", len(c.Devices) > 0)
		said("samples", c.Samples > 0)
		said("exhaustive", c.Exhaustive)
		said("search_time", c.SearchTime > 0)
		said("trials", c.Trials > 0)
		said("rounds", c.Rounds > 0)
		return names, "only=" + fmt.Sprintf("%q", c.Only) + " leaves nothing to choose or to measure"
	case c.Level == OperatorLevel:
		said("trials", c.Trials > 0)
		return names, "the operator level places once"
	}
	return nil, ""
}
