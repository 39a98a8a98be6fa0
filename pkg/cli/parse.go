package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	flags "github.com/jessevdk/go-flags"
)

// parse fills the options struct and returns what to run; nil without an error
// means that the answer (help, version, manual) has been printed.
func parse(tool *Tool, options Runner, env *Env) (Runner, error) {
	dropCompletionVariable()
	m := newModel(tool, options)
	w, err := m.rewrite(env.Args)
	env.exits = append(env.exits, w.verb.decl.Exits)
	env.other = append(env.other, w.verb.decl.ExitOther)
	if err == nil && w.action == "" {
		err = m.fillIn(w, env)
	}
	if err != nil {
		var exit *Exit
		if errors.As(err, &exit) && exit.Hint == "" {
			err = WithHint(err, "%s --help lists the options", strings.TrimSpace(env.Name+" "+w.verb.name))
		}
		return nil, err
	}
	switch w.action {
	case "help":
		return nil, m.writeHelp(env.Stdout, env.Name, w.verb)
	case "version":
		_, err := io.WriteString(env.Stdout, env.Name+" "+version()+"\n")
		return nil, err
	case "man":
		return nil, writeManual(env.Stdout, tool, options)
	}
	if w.verb.runner == nil {
		var b strings.Builder
		if err := m.writeHelp(&b, env.Name, w.verb); err != nil {
			return nil, err
		}
		return nil, Quoted(statusUsage, b.String())
	}
	return w.verb.runner, nil
}

// fillIn checks what the words lack and lets go-flags set the fields.
func (m *model) fillIn(w *words, env *Env) error {
	active := slices.Concat(w.verb.options, m.shared)
	if w.verb != m.root {
		active = append(active, m.root.options...)
	}
	for _, o := range active {
		if len(w.values[o.LongName]) > 0 {
			continue
		}
		if err := o.fromEnvironment(env); err != nil {
			return err
		}
		if o.Required && len(o.Default) == 0 {
			return Usage("option --%s is required", o.LongName)
		}
	}
	if w.verb.runner == nil {
		return nil
	}
	if err := checkArguments(w.verb.args, w.args); err != nil {
		return err
	}
	if _, err := m.parser.ParseArgs(w.argv()); err != nil {
		var usage *flags.Error
		if errors.As(err, &usage) {
			// Not reached by what rewrite has let through, as far as is known.
			return Usage("%s", strings.NewReplacer("`", `"`, "'", `"`).Replace(usage.Message))
		}
		return Usage("%w", err)
	}
	env.Rest = w.rest
	env.color = m.common.Color
	env.given = make(map[string]bool, len(w.values))
	for name := range w.values {
		env.given[name] = true
	}
	return nil
}

func checkArguments(declared []argument, given []string) error {
	for i, a := range declared {
		if a.many {
			if a.required && len(given) <= i {
				return Usage("argument %s is missing", a.name)
			}
			return checkChoices(a, given[min(i, len(given)):])
		}
		if len(given) <= i {
			if a.required {
				return Usage("argument %s is missing", a.name)
			}
			return nil
		}
		if err := checkChoices(a, given[i:i+1]); err != nil {
			return err
		}
	}
	if len(given) > len(declared) {
		return Usage("unexpected argument %s", quote(given[len(declared)]))
	}
	return nil
}

func checkChoices(a argument, values []string) error {
	for _, value := range values {
		if a.choices != nil && !slices.Contains(a.choices, value) {
			return Usage("argument %s: %s: must be %s", a.name, quote(value), alternatives(a.choices))
		}
	}
	return nil
}

// fromEnvironment makes the variable of an option its default. A bad number is
// the documented default and a warning: a typing error in a profile must not stop
// every dispatch of a session. Any other bad value is a usage error that names the
// variable, because there a wrong choice would be made in silence.
func (o *option) fromEnvironment(env *Env) error {
	if o.variable == "" {
		return nil
	}
	value := env.Getenv(o.variable)
	if value == "" {
		return nil
	}
	values := []string{value}
	if o.many && o.delim != "" {
		values = strings.Split(value, o.delim)
	}
	for i, v := range values {
		canonical, err := o.check(v)
		if err != nil && o.numeric() {
			env.warnDefault(o.variable, value, o.defaultText(), err)
			return nil
		}
		if err != nil {
			return Usage("%s=%s: %w", o.variable, quote(v), err)
		}
		values[i] = canonical
	}
	o.Default = values
	return nil
}

// numeric reports whether the option holds a number, of seconds or of anything.
func (o *option) numeric() bool {
	switch o.kind {
	case reflect.TypeFor[Seconds](), reflect.TypeFor[Fraction]():
		return true
	}
	return o.kind.Kind() >= reflect.Int && o.kind.Kind() <= reflect.Float64
}

// check returns the value in the form that go-flags takes without surprise: it
// would read 010 as eight and 0x10 as sixteen.
func (o *option) check(value string) (string, error) {
	if len(o.Choices) > 0 && !slices.Contains(o.Choices, value) {
		return "", errors.New("must be " + alternatives(o.Choices))
	}
	scratch := reflect.New(o.kind)
	if u, ok := scratch.Interface().(flags.Unmarshaler); ok {
		if err := u.UnmarshalFlag(value); err != nil {
			return "", err
		}
		switch v := scratch.Elem().Interface().(type) {
		case Seconds:
			return value, o.bounds(v.Duration().Seconds())
		case Fraction:
			return value, o.bounds(v.Duration().Seconds())
		}
		return value, nil
	}
	switch kind := o.kind.Kind(); {
	case kind == reflect.Bool:
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "1", "true", "yes", "on":
			return "true", nil
		case "0", "false", "no", "off":
			return "false", nil
		}
		return "", errors.New("must be on or off")
	case kind >= reflect.Int && kind <= reflect.Int64:
		n, err := strconv.ParseInt(value, 10, o.kind.Bits())
		if err != nil {
			return "", notNumber(err)
		}
		return strconv.FormatInt(n, 10), o.bounds(float64(n))
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		n, err := strconv.ParseUint(value, 10, o.kind.Bits())
		if err != nil {
			return "", notNumber(err)
		}
		return strconv.FormatUint(n, 10), o.bounds(float64(n))
	case kind == reflect.Float32 || kind == reflect.Float64:
		n, err := strconv.ParseFloat(value, o.kind.Bits())
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return "", errors.New("not a number")
		}
		return strconv.FormatFloat(n, 'g', -1, 64), o.bounds(n)
	}
	return value, nil
}

func notNumber(err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return errors.New("number out of range")
	}
	return errors.New("not a whole number")
}

// bounds applies the tags min and max.
func (o *option) bounds(n float64) error {
	tag := o.Field().Tag
	if least, err := strconv.ParseFloat(tag.Get("min"), 64); err == nil && n < least {
		return fmt.Errorf("must be at least %s", tag.Get("min"))
	}
	if most, err := strconv.ParseFloat(tag.Get("max"), 64); err == nil && n > most {
		return fmt.Errorf("must be at most %s", tag.Get("max"))
	}
	return nil
}

// unquotable protects a value from go-flags, which takes the quotes off a value
// that begins with one.
func unquotable(value string) string {
	if strings.HasPrefix(value, `"`) {
		return strconv.Quote(value)
	}
	return value
}
