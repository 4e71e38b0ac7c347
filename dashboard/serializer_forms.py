"""Forms that a serializer of the API checks and saves: one way in, with the same audit entries."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from rest_framework.serializers import BaseSerializer, ValidationError

from accounts.models import User

__all__ = ["Choice", "Lines", "SerializerForm", "Switch", "Typed"]


class Typed(forms.CharField):
    """A field whose text goes to the serializer as it was typed."""

    def __init__(
        self, label: str, help_text: str, *, mode: str = "text", widget: forms.Widget | None = None
    ) -> None:
        attrs = {"autocomplete": "off", "spellcheck": "false", "inputmode": mode}
        super().__init__(
            label=label,
            help_text=help_text,
            required=False,
            # What was shown is sent, too: what a person has left alone is not changed.
            show_hidden_initial=True,
            widget=widget or forms.TextInput(attrs=attrs),
        )

    def prepare_value(self, value: Any) -> Any:
        """Return a number as a person writes it: 150000, not 150000.0."""
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Lines(Typed):
    """Texts, one a line."""

    def __init__(self, label: str, help_text: str) -> None:
        widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false"})
        super().__init__(label, help_text, widget=widget)

    def to_python(self, value: Any) -> Any:
        """Return each line once."""
        lines = (line.strip() for line in (value or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line))

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


class Choice(forms.ChoiceField):
    """One of several, shown with what it was."""

    def __init__(self, label: str, choices: list[tuple[str, str]], help_text: str = "") -> None:
        super().__init__(
            label=label, choices=choices, help_text=help_text, show_hidden_initial=True
        )


class Switch(forms.BooleanField):
    """On or off, shown with what it was."""

    def __init__(self, label: str, help_text: str) -> None:
        super().__init__(label=label, help_text=help_text, required=False, show_hidden_initial=True)


class SerializerForm(forms.Form):
    """Makes a row, or changes one: what is typed goes to the serializer of the API.

    Every field has its hidden initial value beside it: what a person has left alone is not changed.
    """

    #: Its ``save`` takes the ``actor``.
    serializer: ClassVar[type[BaseSerializer[Any]]]
    #: What an empty field is sent as; all others as null.
    empty: ClassVar[dict[str, Any]] = {}
    #: the row that is changed; None: a new one is made
    row: Any = None

    def saved(self, user: User) -> Any:
        """Make or change the row; None where something is wrong, which its field then says."""
        if not self.is_valid():
            return None
        body = self.body()
        if self.row is not None and not body:
            return self.row
        given = self.serializer(self.row, data=body, partial=self.row is not None)
        try:
            given.is_valid(raise_exception=True)
            return given.save(actor=user)
        except ValidationError as error:
            self._refuse(error.detail)
            return None

    def body(self) -> dict[str, Any]:
        """Return all of a new row, and of one that is there what was changed."""
        names = self.fields if self.row is None else self.changed_data
        return {name: self._sent(name) for name in names}

    def _sent(self, name: str) -> Any:
        given = self.cleaned_data[name]
        return given if isinstance(given, bool) else given or self.empty.get(name)

    def _refuse(self, detail: Any) -> None:
        for name, said in detail.items():
            self.add_error(name if name in self.fields else None, _texts(said))


def _texts(said: Any) -> list[str]:
    """Return the sentences of a fault, also of those of items by their places."""
    if isinstance(said, dict):
        return [text for each in said.values() for text in _texts(each)]
    return [str(each) for each in said] if isinstance(said, list) else [str(said)]
