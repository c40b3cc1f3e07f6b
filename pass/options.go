// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"fmt"
	"strconv"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/settings"
)

// passOptions are the options of PassContext. They hold where the pass was made without a value of its own.
var passOptions = []struct {
	key  string
	kind bridge.OptionKind
	set  func(cfg *settings.Config, v bridge.Value) error
}{
	{"collage.backends", bridge.OptionStringList,
		func(cfg *settings.Config, v bridge.Value) error { return setStrings(&cfg.Backends, v) }},
	{"collage.pin", bridge.OptionStringList, func(cfg *settings.Config,
		v bridge.Value) error {
		return setStrings(&cfg.Pin, v)
	}},
	{"collage.forbid", bridge.OptionStringList,
		func(cfg *settings.Config, v bridge.Value) error { return setStrings(&cfg.Forbid, v) }},
	{"collage.target", bridge.OptionString, func(cfg *settings.Config,
		v bridge.Value) error {
		return setString(&cfg.Target, v)
	}},
	{"collage.store", bridge.OptionString, func(cfg *settings.Config,
		v bridge.Value) error {
		return setString(&cfg.Store, v)
	}},
	{"collage.tuning_log", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setString(&cfg.TuningLog, v) }},
	{"collage.level", bridge.OptionString, func(cfg *settings.Config,
		v bridge.Value) error {
		return setString((*string)(&cfg.Level), v)
	}},
	{"collage.trials", bridge.OptionInteger, func(cfg *settings.Config,
		v bridge.Value) error {
		return setInt(&cfg.Trials, v)
	}},
	{"collage.only", bridge.OptionString, func(cfg *settings.Config,
		v bridge.Value) error {
		return setString(&cfg.Only, v)
	}},
	{"collage.python", bridge.OptionString, func(cfg *settings.Config,
		v bridge.Value) error {
		return setString(&cfg.Python, v)
	}},
	{"collage.threads", bridge.OptionInteger,
		func(cfg *settings.Config, v bridge.Value) error { return setInt(&cfg.Threads, v) }},
	{"collage.samples", bridge.OptionInteger,
		func(cfg *settings.Config, v bridge.Value) error { return setInt(&cfg.Samples, v) }},
	{"collage.retry_failures", bridge.OptionBool,
		func(cfg *settings.Config, v bridge.Value) error { return setBool(&cfg.RetryFailures, v) }},
	{"collage.exact", bridge.OptionBool, func(cfg *settings.Config,
		v bridge.Value) error {
		return setBool(&cfg.Exact, v)
	}},
	{"collage.precision", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setString(&cfg.Precision.Allowed, v) }},
	{"collage.calibration", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setString(&cfg.Precision.Calibration, v) }},
	{"collage.calibration_method", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error {
			return setString(&cfg.Precision.CalibrationMethod, v)
		}},
	{"collage.bias_correction", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setString(&cfg.Precision.BiasCorrection, v) }},
	{"collage.error_measure", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setString(&cfg.Precision.Measure, v) }},
	{"collage.max_error", bridge.OptionString,
		func(cfg *settings.Config, v bridge.Value) error { return setFloat(&cfg.Precision.MaxError, v) }},
	{"collage.exhaustive", bridge.OptionBool,
		func(cfg *settings.Config, v bridge.Value) error { return setBool(&cfg.Exhaustive, v) }},
	{"collage.skip_unusable", bridge.OptionBool,
		func(cfg *settings.Config, v bridge.Value) error { return setBool(&cfg.SkipUnusable, v) }},
}

func setBool(field *bool, v bridge.Value) error {
	yes, err := v.Bool()
	*field = *field || yes
	return err
}

func setStrings(field *[]string, v bridge.Value) error {
	list, err := v.Object()
	if err != nil || len(*field) > 0 {
		return err
	}
	*field, err = list.Strings()
	return err
}

func setString(field *string, v bridge.Value) error {
	text, err := v.Str()
	if err == nil && *field == "" {
		*field = text
	}
	return err
}

// setFloat reads a number that is written as a text: PassContext knows no other options with a point.
func setFloat(field *float64, v bridge.Value) error {
	text, err := v.Str()
	if err != nil || *field != 0 {
		return err
	}
	if *field, err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("ValueError: %q is no number", text)
	}
	return nil
}

func setInt(field *int, v bridge.Value) error {
	n, err := v.Int()
	if err == nil && *field == 0 {
		*field = int(n)
	}
	return err
}

// fromPassContext takes the options of the PassContext around the call where cfg says nothing.
func fromPassContext(cfg *settings.Config) error {
	for _, o := range passOptions {
		v, ok, err := bridge.PassContextConfig(o.key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := o.set(cfg, v); err != nil {
			return &settings.OptionError{Option: o.key, Reason: "of the PassContext is not readable: " + err.Error()}
		}
	}
	return nil
}

// WithPassContext is a Config with what a PassContext around the call says about what it leaves open.
func WithPassContext(cfg settings.Config) (settings.Config, error) {
	err := fromPassContext(&cfg)
	return cfg, err
}
