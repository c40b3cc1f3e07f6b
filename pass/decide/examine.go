// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
	"github.com/collage-tvm/collage/pass/workers"
)

// witnessLimit is how long another engine's answer is waited for: it has had the time of plain TVM's build.
const witnessLimit = 10 * time.Second

// quiet waits until the other engine has answered, so that nothing of it runs beside what is timed, and holds plain TVM
// against it, where it is there: what other networks may be off by goes by that.
func (c *decision) quiet(ctx context.Context) error {
	if _, err := c.Witness.Wait(ctx, witnessLimit); err != nil {
		return err
	}
	return c.examinePlain()
}

// examinePlain holds what TVM read against the other engine's answers as soon as plain TVM is there: a search for the
// fastest way to a wrong result would be time lost.
func (c *decision) examinePlain() error {
	if c.Witness == nil || c.agreement != nil || c.graph == nil || c.graph.lane == nil {
		return nil
	}
	plain := c.graph.lane.Plain()
	if !c.graph.isBuilt(plain) {
		return nil
	}
	e, err := c.graph.lane.Executable(c.ctx, plain)
	if err != nil {
		return err
	}
	return c.examine(func(t witness.Testimony) (witness.Agreement, error) {
		agreement, err := c.graph.lane.Agree(c.ctx, e, t)
		c.plainDoubt = agreement.Doubt
		return agreement, err
	})
}

// examineKept does so with what is kept, where that was not done with plain TVM; where parts of it are computed
// narrowly, with plain TVM all the same: that is what it was held against, by an error limit.
func (c *decision) examineKept(kept *finalist) error {
	if c.Witness == nil || c.agreement != nil {
		return nil
	}
	path := kept.path
	if c.narrow(kept) {
		if c.reference == nil {
			c.reference = &finalist{name: referenceName, module: c.module}
		}
		if _, err := os.Stat(c.reference.path); err != nil {
			if err := c.buildOne(c.reference); err != nil {
				return err
			}
		}
		path = c.reference.path
	}
	// A folder of its own: Python looks where it stands for modules first, and there may be an executable tvm.so.
	folder, err := os.MkdirTemp(c.Temporary, "examined-")
	if err != nil {
		return err
	}
	networks, err := measure.NewNetworks(measure.Options{
		Settings: measure.Settings{Target: c.target, OptLevel: c.OptLevel, Threads: c.Threads},
		Python:   c.Python, Env: workers.WorkerEnvironment(), Poll: c.poll, Trace: c.Trace}, 1, folder)
	if err != nil {
		return err
	}
	defer networks.Close()
	return c.examine(func(t witness.Testimony) (witness.Agreement, error) {
		return networks.Agree(c.ctx, path, t)
	})
}

// examine has a network's outputs compared with the other engine's. Errors: a *witness.DisagreementError, and with
// Strict a *settings.StrictError where there is nothing to compare them with.
func (c *decision) examine(agree func(t witness.Testimony) (witness.Agreement, error)) error {
	testimony, err := c.Witness.Wait(c.ctx, witnessLimit)
	if err != nil {
		return err
	}
	agreement := witness.Agreement{Engine: testimony.Engine, Unchecked: testimony.Unchecked}
	if agreement.Unchecked != "" && c.Strict {
		return &settings.StrictError{Warning: "whether TVM read the model right was not checked: " + agreement.Unchecked}
	}
	if agreement.Unchecked == "" {
		if agreement, err = agree(testimony); err != nil {
			if agreement, err = c.doubt(err, agree); err != nil {
				return err
			}
		}
	}
	c.agreement = &agreement
	return nil
}

// doubt asks another engine where one does not agree with TVM: engines err, too. The error is the first one's where
// nobody agrees with TVM.
func (c *decision) doubt(err error,
	agree func(t witness.Testimony) (witness.Agreement, error)) (witness.Agreement, error) {
	var differs *witness.DisagreementError
	if !errors.As(err, &differs) {
		return witness.Agreement{}, err
	}
	second, failed := c.Witness.Second(c.ctx)
	if failed != nil {
		return witness.Agreement{}, failed
	}
	if second.Unchecked != "" {
		return witness.Agreement{}, err
	}
	agreement, failed := agree(second)
	if failed != nil {
		return witness.Agreement{}, err
	}
	agreement.Otherwise = fmt.Sprintf("%s answers otherwise: %s", differs.Engine, differs.Mismatch)
	return agreement, nil
}
