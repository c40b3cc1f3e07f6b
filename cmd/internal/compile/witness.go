// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/witness"
)

// ask has another engine answer what the model's outputs are, while TVM builds.
func (c *compilation) ask(question json.RawMessage) error {
	if c.NoCheckImport || len(question) == 0 || string(question) == "null" {
		return nil
	}
	var err error
	c.Witness, err = pass.Ask(c.Python, question, c.Temporary)
	return err
}

// located says of an error that TVM computes something else than another engine, which operator is the first that does.
func (c *compilation) located(err error, format string) error {
	var differs *witness.DisagreementError
	if !errors.As(err, &differs) {
		return err
	}
	first := ""
	if format == "onnx" {
		first = c.first()
	}
	return fmt.Errorf("%s: %w%s. --no-check-import compiles what TVM read all the same", c.Model, err, first)
}

// first names the first operator of an ONNX model that TVM computes otherwise; "" where none can be named.
func (c *compilation) first() string {
	step := c.Progress.Start("looking for the first operator that differs", 0)
	value, err := decide.CallHost("collage.host.first_difference", c.given())
	if err != nil {
		c.Progress.Stop()
		return ""
	}
	text, err := value.Str()
	if err != nil {
		return ""
	}
	var found *struct{ Operator, Makes, Mismatch string }
	if json.Unmarshal([]byte(text), &found) != nil || found == nil {
		step.Done("none differs by itself")
		return ""
	}
	step.Done("%s", found.Operator)
	return fmt.Sprintf(". The first operator that differs is the %s that makes %s: it %s", found.Operator, found.Makes,
		found.Mismatch)
}
