// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/settings"
)

// LevelAttribute is the attribute of a placed module that says at which level it was placed.
const LevelAttribute = "collage.level"

// WithLevel is a module with LevelAttribute; the caller's, as mod is.
func WithLevel(mod *bridge.Object, level settings.Level) (*bridge.Object, error) {
	v, err := bridge.Global("ir.Module_WithAttr", mod, LevelAttribute, string(level))
	if err != nil {
		return nil, fmt.Errorf("saying at which level a module was placed: %w", err)
	}
	return v.Object()
}
