// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/internal/tracefile"
)

// Record begins the recording that Trace asks for, of what is called so ("collage.partition"), and gives the function
// that writes the file: it is called at the end, whatever that is, with the error so far, and gives the error with what
// kept the file from being written. Without Trace, or where somebody else records, both do nothing. The error is an
// *OptionError: the file cannot be written.
func (c *Config) Record(what string) (end func(so error) error, err error) {
	if c.Trace == "" || c.Recorder != nil {
		return func(so error) error { return so }, nil
	}
	path, err := filepath.Abs(c.Trace)
	if err == nil {
		err = atomicfile.CheckWritable(path)
	}
	if err != nil {
		return nil, &OptionError{"trace", "cannot be used: " + err.Error()}
	}
	recorder := tracefile.New(what, time.Now())
	c.Recorder = recorder
	return func(so error) error {
		if err := recorder.WriteFile(path, tracefile.Details{"command": what}); err != nil {
			return errors.Join(so, fmt.Errorf("the trace was not written: %w", err))
		}
		return so
	}, nil
}
