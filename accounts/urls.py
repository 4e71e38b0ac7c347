"""Pages of the account, at the root.

Include them before the admin site, two of whose pages they replace.
"""

from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.urls import path
from django.views.generic import RedirectView

from accounts import views
from accounts.second_factor import views as second_factor
from accounts.sign_on import views as sign_on

urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("login/code/", second_factor.code, name="login_code"),
    path("login/enroll/", second_factor.enroll_at_login, name="login_enroll"),
    path("login/sign-on/", sign_on.begin, name="sign_on"),
    path("login/callback/", sign_on.callback, name="sign_on_callback"),
    path("logout/", views.Logout.as_view(), name="logout"),
    path("password/link/", views.password_by_link, name="password_by_link"),
    path("password/", views.ChangePassword.as_view(), name="password_change"),
    path(
        "password/done/", auth_views.PasswordChangeDoneView.as_view(), name="password_change_done"
    ),
    path("account/", views.account, name="account"),
    path("account/tokens/", views.create_token, name="create_token"),
    path("account/tokens/<int:pk>/revoke/", views.revoke_token, name="revoke_token"),
    path("account/sessions/end-others/", views.end_other_sessions, name="end_other_sessions"),
    path("account/sessions/<slug:handle>/end/", views.end_session, name="end_session"),
    path("account/second-factor/", second_factor.enroll, name="second_factor"),
    path("account/second-factor/change/", second_factor.change, name="change_second_factor"),
    path("account/link/", sign_on.allow_link, name="link_identity"),
    path("account/link/<int:pk>/end/", sign_on.unlink, name="unlink_identity"),
    path("admin/login/", views.admin_login),
    path(
        "admin/password_change/",
        login_required(RedirectView.as_view(pattern_name="password_change")),
    ),
]
