// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Encode gives the plan's JSON, indented, with a line break at its end. Equal plans give equal bytes. A plan that is
// not valid is refused.
func (p *Plan) Encode() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return text.Bytes(), nil
}

// Decode reads a plan's JSON and validates it. Unknown fields are refused: a plan that says more than is understood
// must not be replayed as if it said less.
func Decode(text []byte) (*Plan, error) {
	var head struct {
		Schema *int `json:"collage_plan"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, describe(text, err)
	}
	if head.Schema == nil {
		return nil, errors.New("not a plan: it has no field collage_plan")
	}
	if *head.Schema != Schema {
		return nil, &SchemaError{Found: *head.Schema}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	p := &Plan{}
	if err := decoder.Decode(p); err != nil {
		return nil, describe(text, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a plan: something follows the JSON value")
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// describe says where in the text the JSON is wrong.
func describe(text []byte, err error) error {
	offset := int64(-1)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &mismatch):
		offset = mismatch.Offset
	}
	if offset < 0 || offset > int64(len(text)) {
		return fmt.Errorf("not a plan: %w", err)
	}
	return fmt.Errorf("not a plan: line %d: %w", 1+bytes.Count(text[:offset], []byte("\n")), err)
}

// ReadFile reads a plan from a file. Errors name the file.
func ReadFile(path string) (*Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	p, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// WriteFile writes the plan to a file, which appears whole or not at all: it is written beside its place and then
// renamed.
func (p *Plan) WriteFile(path string) (err error) {
	text, err := p.Encode()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
	if err != nil {
		return fmt.Errorf("writing the plan %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
			err = fmt.Errorf("writing the plan %s: %w", path, err)
		}
	}()
	if _, err = file.Write(text); err != nil {
		return err
	}
	if err = file.Chmod(0o644); err != nil { // CreateTemp makes files that only their owner reads
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
