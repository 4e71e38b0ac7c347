"""The admin site, with checks of input that Django passes to the database unchecked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import BadRequest, ValidationError

from accounts.edge.parameters import BIGGEST_ID, whole_number

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


class AdminSite(admin.AdminSite):
    """Refuses a selection of rows that are none."""

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            for given in request.POST.getlist(ACTION_CHECKBOX_NAME):
                if whole_number(given, most=BIGGEST_ID) is None:
                    raise BadRequest("What is selected is no row.")
            answer: HttpResponse = view(request, *args, **kwargs)
            return answer

        return super().admin_view(checked, cacheable)


class Autocomplete(AutocompleteSelect):
    """Shows a form with an invalid key again, as one in which nothing is chosen."""

    def optgroups(self, name: str, value: Any, attr: Any = None) -> Any:
        return super().optgroups(name, [each for each in value if self._may_be_key(each)], attr)

    def _may_be_key(self, value: Any) -> bool:
        field: Any = self.field
        try:
            key = field.target_field.to_python(value)
        except ValidationError:
            return False
        return not isinstance(key, int) or abs(key) <= BIGGEST_ID
