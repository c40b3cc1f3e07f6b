// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/settings"
)

// optionKinds are the types that options have in a PassContext, which knows no numbers with a point: they are texts.
var optionKinds = map[settings.Kind]bridge.OptionKind{
	settings.Text: bridge.OptionString, settings.Texts: bridge.OptionStringList, settings.Integer: bridge.OptionInteger,
	settings.Number: bridge.OptionString, settings.Truth: bridge.OptionBool,
}

// PassContextName is what a PassContext calls an option.
func PassContextName(o *settings.Option) string { return "collage." + o.Name }

// registerOptions makes the options known to PassContext.
func registerOptions() error {
	for _, o := range settings.Options() {
		if err := bridge.RegisterPassContextOption(PassContextName(&o), optionKinds[o.Kind()]); err != nil {
			return err
		}
	}
	return nil
}

// setOption sets a field of a Config that says nothing to what a PassContext says.
func setOption(field reflect.Value, kind settings.Kind, v bridge.Value) error {
	switch kind {
	case settings.Truth:
		yes, err := v.Bool()
		field.SetBool(yes)
		return err
	case settings.Texts:
		list, err := v.Object()
		if err != nil {
			return err
		}
		texts, err := list.Strings()
		field.Set(reflect.ValueOf(texts))
		return err
	case settings.Integer:
		n, err := v.Int()
		if err != nil {
			return err
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		field.SetInt(n)
		return nil
	}
	text, err := v.Str()
	if err != nil {
		return err
	}
	if kind == settings.Text {
		field.SetString(text)
		return nil
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("ValueError: %q is no number", text)
	}
	field.SetFloat(number)
	return nil
}

// fromPassContext takes the options of the PassContext around the call where cfg says nothing.
func fromPassContext(cfg *settings.Config) error {
	for _, o := range settings.Options() {
		v, ok, err := bridge.PassContextConfig(PassContextName(&o))
		if err != nil {
			return err
		}
		field := o.Field(cfg)
		if !ok || !field.IsZero() {
			continue
		}
		if err := setOption(field, o.Kind(), v); err != nil {
			return &settings.OptionError{Option: PassContextName(&o),
				Reason: "of the PassContext is not readable: " + err.Error()}
		}
	}
	return nil
}

// WithPassContext is a Config with what a PassContext around the call says about what it leaves open.
func WithPassContext(cfg settings.Config) (settings.Config, error) {
	err := fromPassContext(&cfg)
	return cfg, err
}

// optionInfo is what OptionsFunction gives of an option.
type optionInfo struct {
	Name    string        `json:"name"`
	Kind    settings.Kind `json:"kind"`
	Default any           `json:"default"`
	Flag    string        `json:"flag"`
	Part    settings.Part `json:"part"`
	Meaning string        `json:"meaning"`
}

func optionsFunction([]bridge.Value) (any, error) {
	infos := []optionInfo{}
	for _, o := range settings.Options() {
		infos = append(infos, optionInfo{o.Name, o.Kind(), o.Default, o.Flag, o.Part, o.Described()})
	}
	text, err := json.Marshal(infos)
	return string(text), err
}
