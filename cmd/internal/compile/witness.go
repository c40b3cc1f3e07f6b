// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/witness"
	"github.com/collage-tvm/collage/pass/workers"
)

// ask has another engine answer what the model's outputs are, while TVM builds.
func (c *compilation) ask(question json.RawMessage) error {
	c.asked = len(question) > 0 && string(question) != "null"
	if c.NoCheckImport || !c.asked {
		return nil
	}
	var err error
	c.Witness, err = workers.Ask(c.Python, question, c.Temporary)
	return err
}

// located says of an error that TVM computes something else than another engine, which operator is the first that does.
func (c *compilation) located(err error, format string) error {
	var differs *witness.DisagreementError
	if !errors.As(err, &differs) {
		return err
	}
	return fmt.Errorf("%s: %w%s. --no-check-import compiles what TVM read all the same", c.Model, err, c.first(format))
}

// first names the first operator of an ONNX, TorchScript or TensorFlow Lite model, or of what PyTorch writes as ONNX,
// that TVM computes otherwise, or says why none is named.
func (c *compilation) first(format string) string {
	step := c.Progress.Start("looking for the first operator that differs", 0)
	found, err := c.search(format)
	switch {
	case err != nil:
		c.Progress.Stop()
		return fmt.Sprintf(". Which operator is the first that differs could not be found: %v", err)
	case found != nil:
		step.Done("%s", found.Operator)
		return fmt.Sprintf(". The first operator that differs is the %s that makes %s: it %s", found.Operator,
			found.Makes, found.Mismatch)
	}
	step.Done("none differs by itself")
	if format == "pt2" {
		return ". No operator differs in the ONNX model that PyTorch writes of it: that computes something else already"
	}
	return ". No operator differs by itself"
}

// difference is an operator that TVM computes otherwise.
type difference struct{ Operator, Makes, Mismatch string }

// search asks for the first such operator; nil where none differs by itself.
func (c *compilation) search(format string) (found *difference, err error) {
	given := c.given()
	given["format"] = format
	value, err := decide.CallHost("collage.host.first_difference", given)
	if err != nil {
		return nil, err
	}
	text, err := value.Str()
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal([]byte(text), &found)
	return found, err
}
