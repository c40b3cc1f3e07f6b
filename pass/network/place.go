// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Place is pass.Partition by what parts take alone: no whole network is run, and what is the cheapest by the sum may be
// slower in place than a backend alone.
func Place(mod *bridge.Object, cfg settings.Config) (out *bridge.Object, p *plan.Plan, err error) {
	// PassContext and Target, which TVM's passes read, belong to the thread.
	err = bridge.OnThread(func() error {
		var s *placing.Module
		if s, err = placing.Decided(mod, cfg, nil); err != nil {
			return err
		}
		if s.Late && slices.ContainsFunc(s.Backends, byoc.Backend.TakesAnything) {
			if out, p, err = believed(s); err == nil {
				s.Timings.Keep()
			}
			return err
		}
		if out, p, err = written(s); err == nil {
			s.Timings.Keep()
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return out, p, nil
}

// PlaceLike is placing.Like with the module and the plan written.
func PlaceLike(mod *bridge.Object, cfg settings.Config, like *plan.Plan, nodes []relay.NodeID, open string) (
	out *bridge.Object, p *plan.Plan, err error) {
	err = bridge.OnThread(func() error {
		s, err := placing.Like(mod, cfg, like, nodes, open)
		if err != nil {
			return err
		}
		out, p, err = written(s)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return out, p, nil
}

// written is the module and the plan of what was decided.
func written(s *placing.Module) (*bridge.Object, *plan.Plan, error) {
	out, err := s.Annotate()
	if err != nil {
		return nil, nil, err
	}
	p, err := s.Plan()
	if err != nil {
		out.Release()
		return nil, nil, err
	}
	return out, p, nil
}

// believed is the module and the plan of what is the cheapest by what is believed, where Config.Until ended the
// measuring.
func believed(s *placing.Module) (*bridge.Object, *plan.Plan, error) {
	hash, err := s.Hash()
	if err != nil {
		return nil, nil, err
	}
	n, err := New(s, hash)
	if err != nil {
		return nil, nil, err
	}
	p, err := n.Plan(n.Placed, nil)
	if err != nil {
		return nil, nil, err
	}
	plain, err := n.Module(n.Placed)
	if err != nil {
		return nil, nil, err
	}
	defer plain.Release()
	out, err := placing.WithLevel(plain, settings.OperatorLevel)
	return out, p, err
}

// Annotated is Place without the plan.
func Annotated(mod *bridge.Object, cfg settings.Config) (out *bridge.Object, err error) {
	err = bridge.OnThread(func() error {
		s, err := placing.Decided(mod, cfg, nil)
		if err != nil {
			return err
		}
		if out, err = s.Annotate(); err == nil {
			s.Timings.Keep()
		}
		return err
	})
	return out, err
}
